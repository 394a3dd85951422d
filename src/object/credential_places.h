// The places that keys may come from. Each says nothing (an empty optional) if it is not in use
// here, and is an error if it is in use and gives no keys. Messages name place and cause, and never
// a key, a token, or text that somebody else wrote. Any thread; nothing is kept between calls.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "deepfreeze/result.h"
#include "object/credentials.h"
#include "object/http.h"

namespace deepfreeze {

using FoundKeys = Result<std::optional<Credentials>>;

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
[[nodiscard]] FoundKeys keys_of_environment(const Environment& environment);

// AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN and AWS_ROLE_SESSION_NAME: the token, over https, for
// keys of the role.
[[nodiscard]] FoundKeys keys_of_web_identity(HttpTransport& transport,
                                             const Environment& environment);
// The same, written in a profile.
struct WebIdentity {
  std::string token_file;
  std::string role;
  std::string session_name;  // may be empty
};
[[nodiscard]] Result<Credentials> assume_role(HttpTransport& transport,
                                              const Environment& environment,
                                              const WebIdentity& identity);

// AWS_PROFILE, or "default", in AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and
// AWS_CONFIG_FILE (~/.aws/config).
[[nodiscard]] FoundKeys keys_of_profile(HttpTransport& transport, const Environment& environment);

// AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI: only https, or this machine.
[[nodiscard]] FoundKeys keys_of_container(HttpTransport& transport, const Environment& environment);

// The machine's metadata service (IMDSv2). kNotFound: it is not in use here, for the reason that
// the message gives.
inline constexpr std::chrono::milliseconds kMetadataSilenceMax{1'000};
[[nodiscard]] Result<Credentials> keys_of_metadata(HttpTransport& transport,
                                                   const Environment& environment);

// An empty variable counts as none.
[[nodiscard]] std::optional<std::string> value_of(const Environment& environment, const char* name);

}  // namespace deepfreeze
