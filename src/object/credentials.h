// Keys for an object store, and the places that they may come from. They are secrets: they appear
// in no message, record or argument, and the memory that held them is cleared.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/secret.h"
#include "deepfreeze/result.h"
#include "object/http.h"

namespace deepfreeze {

struct Credentials {
  Secret access_key;
  Secret secret_key;
  Secret session_token = {};                                          // may be empty
  std::optional<std::chrono::system_clock::time_point> expires = {};  // absent: never

  bool operator==(const Credentials&) const = default;
};

// Any thread; one refresh at a time, in the thread that asks. Meanwhile, and if it fails, the
// others go on with the present keys as long as these are valid.
class CredentialSource {
 public:
  CredentialSource() = default;
  CredentialSource(const CredentialSource&) = delete;
  CredentialSource& operator=(const CredentialSource&) = delete;
  virtual ~CredentialSource() = default;

  // The keys to use now: new ones from kRefreshBefore their end on. kInvalidArgument: none of the
  // places has any, and the message lists them, or one of them is set up wrongly. kIo, kTimeout: a
  // place that has keys did not give them this time. Never kNotFound, which means a missing object.
  [[nodiscard]] virtual Result<Credentials> get() = 0;
  // The store has refused these: the next get() looks for others, and gives these again only if it
  // can't get any. Without effect if a refresh has replaced them already.
  virtual void refuse(const Credentials& refused) = 0;
};

inline constexpr std::chrono::minutes kRefreshBefore{5};
// Between tries after a failed refresh; doubled each time. Until then get() repeats the error,
// unless there are valid keys.
inline constexpr std::chrono::seconds kRefreshPauseMin{1};
inline constexpr std::chrono::seconds kRefreshPauseMax{60};
// New keys are used this long, even if by this machine's clock they have expired already.
inline constexpr std::chrono::seconds kNewKeysMin{30};

// Reads the environment; tests bring one of their own.
using Environment = std::function<std::optional<std::string>(const std::string& variable)>;
[[nodiscard]] Environment process_environment();

// Tests bring a clock of their own.
using WallClock = std::function<std::chrono::system_clock::time_point()>;
[[nodiscard]] WallClock real_clock();

// As the SDKs of AWS look for them, in this order: AWS_ACCESS_KEY_ID and its companions, a web
// identity (AWS_WEB_IDENTITY_TOKEN_FILE), the profile of AWS_PROFILE in ~/.aws/credentials and
// ~/.aws/config (also its credential_process), a container's address
// (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI), the machine's metadata service (IMDSv2).
// The first place that is in use decides, also by its error: nobody's keys are used by mistake.
[[nodiscard]] std::unique_ptr<CredentialSource> find_credentials(
    std::shared_ptr<HttpTransport> transport, Environment environment = process_environment(),
    WallClock now = real_clock());

// Keys that a program gives, such as a Python callable; `ask` is called by one thread at a time,
// without a lock, and does not throw.
[[nodiscard]] std::unique_ptr<CredentialSource> credentials_from(
    std::function<Result<Credentials>()> ask, WallClock now = real_clock());

}  // namespace deepfreeze
