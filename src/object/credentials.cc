#include "object/credentials.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/try.h"
#include "object/credential_places.h"

namespace deepfreeze {
namespace {

// The places, in their order. One call at a time.
class KeyChain {
 public:
  KeyChain(std::shared_ptr<HttpTransport> transport, Environment environment)
      : transport_(std::move(transport)), environment_(std::move(environment)) {}

  Result<Credentials> ask() {
    auto found = look();
    if (!found) return std::unexpected(found.error().within("keys for the object store"));
    return found;
  }

 private:
  Result<Credentials> look() {
    DF_TRY(auto keys, of("the environment", keys_of_environment(environment_)));
    if (keys) return std::move(*keys);
    DF_TRY(keys, of("the web identity", keys_of_web_identity(*transport_, environment_)));
    if (keys) return std::move(*keys);
    DF_TRY(keys, of("the profile", keys_of_profile(*transport_, environment_)));
    if (keys) return std::move(*keys);
    DF_TRY(keys, of("the container's address", keys_of_container(*transport_, environment_)));
    if (keys) return std::move(*keys);
    return ask_machine();
  }

  static FoundKeys of(std::string_view place, FoundKeys found) {
    if (!found) return std::unexpected(found.error().within(place));
    return found;
  }

  Result<Credentials> ask_machine() {
    auto keys = keys_of_metadata(*transport_, environment_);
    if (keys) {
      machine_has_answered_ = true;
      return keys;
    }
    const Error error = keys.error().within("the machine's metadata service");
    if (error.code() != ErrorCode::kNotFound) return std::unexpected(error);
    if (machine_has_answered_) return fail(ErrorCode::kIo, error.message());
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("there are none. Looked at AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE, the "
                    "profile \"default\", AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and _FULL_URI, "
                    "and {}",
                    error.message()));
  }

  // Other holders are the clients of the store.
  const std::shared_ptr<HttpTransport> transport_;
  const Environment environment_;
  bool machine_has_answered_ = false;
};

}  // namespace

std::optional<std::string> value_of(const Environment& environment, const char* name) {
  auto value = environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

FoundKeys keys_of_environment(const Environment& environment) {
  auto access_key = value_of(environment, "AWS_ACCESS_KEY_ID");
  auto secret_key = value_of(environment, "AWS_SECRET_ACCESS_KEY");
  if (!access_key && !secret_key) return std::nullopt;
  if (!access_key || !secret_key) {
    return fail(ErrorCode::kInvalidArgument,
                "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set");
  }
  auto token = value_of(environment, "AWS_SESSION_TOKEN");
  return Credentials{.access_key = std::move(*access_key),
                     .secret_key = std::move(*secret_key),
                     .session_token = std::move(token).value_or("")};
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

WallClock real_clock() { return std::chrono::system_clock::now; }

std::unique_ptr<CredentialSource> find_credentials(std::shared_ptr<HttpTransport> transport,
                                                   Environment environment, WallClock now) {
  auto chain = std::make_shared<KeyChain>(std::move(transport), std::move(environment));
  return credentials_from([chain] { return chain->ask(); }, std::move(now));
}

}  // namespace deepfreeze
