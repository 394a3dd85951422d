#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "base/try.h"
#include "object/credential_answer.h"
#include "object/credential_places.h"
#include "object/credential_process.h"
#include "object/profile_file.h"
#include "storage/secret_file.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kProfileFileBytesMax = 1U << 20U;

struct FoundProfile {
  std::string name;
  std::string credentials_path;  // empty: there is no home directory
  std::string config_path;
  ProfileSettings of_credentials;
  ProfileSettings of_config;

  // The first file counts.
  [[nodiscard]] const Secret* setting(std::string_view wanted) const {
    for (const ProfileSettings* settings : {&of_credentials, &of_config}) {
      const auto found = settings->find(wanted);
      if (found != settings->end() && !found->second.empty()) return &found->second;
    }
    return nullptr;
  }
};

std::string profile_path(const Environment& environment, const char* name,
                         std::string_view in_home) {
  if (auto path = value_of(environment, name)) {
    if (!path->starts_with("~/")) return *path;
    return value_of(environment, "HOME").value_or("") + path->substr(1);
  }
  const auto home = value_of(environment, "HOME");
  return home ? fmt::format("{}/.aws/{}", *home, in_home) : "";
}

Result<ProfileSettings> read_profile(const std::string& path, ProfileFile file,
                                     std::string_view profile) {
  const auto text = read_secret_file(path, kProfileFileBytesMax);
  if (!text && text.error().code() == ErrorCode::kNotFound) return ProfileSettings{};
  if (!text) return std::unexpected(text.error());
  return settings_of_profile(text->text(), file, profile);
}

std::string quoted_profile(std::string_view profile) {
  return fmt::format("\"{}\"", printable(profile));
}

// Keys of one file, never the access key of one with the secret key of the other.
FoundKeys keys_in_file(const ProfileSettings& settings) {
  const auto access_key = settings.find("aws_access_key_id");
  const auto secret_key = settings.find("aws_secret_access_key");
  const auto token = settings.find("aws_session_token");
  if (access_key == settings.end() && secret_key == settings.end()) return std::nullopt;
  if (access_key == settings.end() || secret_key == settings.end()) {
    return fail(ErrorCode::kInvalidArgument,
                "it has only one of aws_access_key_id and aws_secret_access_key");
  }
  Credentials keys{.access_key = access_key->second, .secret_key = secret_key->second};
  if (token != settings.end()) keys.session_token = token->second;
  return keys;
}

std::unexpected<Error> unsupported_setting(std::string_view setting) {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("it has {}, for which DeepFreeze can't get keys itself; a Python callable can "
                  "give them (credentials=), for example from boto3",
                  setting));
}

std::optional<std::string_view> first_setting(const FoundProfile& profile,
                                              std::initializer_list<std::string_view> names) {
  const auto found = std::ranges::find_if(
      names, [&](std::string_view name) { return profile.setting(name) != nullptr; });
  if (found == names.end()) return std::nullopt;
  return *found;
}

// In the order of AWS's SDKs.
FoundKeys keys_of(HttpTransport& transport, const Environment& environment,
                  const FoundProfile& profile) {
  if (const auto name = first_setting(profile, {"source_profile", "credential_source"})) {
    return unsupported_setting(*name);
  }
  for (const ProfileSettings* settings : {&profile.of_credentials, &profile.of_config}) {
    DF_TRY(auto keys, keys_in_file(*settings));
    if (keys) return keys;
  }
  const Secret* role = profile.setting("role_arn");
  const Secret* token_file = profile.setting("web_identity_token_file");
  if (role != nullptr && token_file != nullptr) {
    const Secret* session = profile.setting("role_session_name");
    return assume_role(transport, environment,
                       {.token_file = token_file->text(),
                        .role = role->text(),
                        .session_name = session != nullptr ? session->text() : ""});
  }
  if (const auto name =
          first_setting(profile, {"role_arn", "sso_session", "sso_start_url", "sso_account_id",
                                  "sso_role_name", "login_session"})) {
    return unsupported_setting(*name);
  }
  const Secret* command = profile.setting("credential_process");
  if (command == nullptr) return std::nullopt;
  const auto output = run_credential_process(command->text());
  if (!output) return std::unexpected(output.error().within("credential_process"));
  const auto keys = parse_keys_json(output->text(), KeysFrom::kProgram);
  if (!keys) return std::unexpected(keys.error().within("credential_process"));
  return *keys;
}

}  // namespace

FoundKeys keys_of_profile(HttpTransport& transport, const Environment& environment) {
  const auto wanted = value_of(environment, "AWS_PROFILE");
  FoundProfile profile{
      .name = wanted.value_or("default"),
      .credentials_path = profile_path(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials"),
      .config_path = profile_path(environment, "AWS_CONFIG_FILE", "config")};
  DF_TRY(profile.of_credentials,
         read_profile(profile.credentials_path, ProfileFile::kCredentials, profile.name));
  DF_TRY(profile.of_config, read_profile(profile.config_path, ProfileFile::kConfig, profile.name));
  auto found = keys_of(transport, environment, profile);
  if (!found) return std::unexpected(found.error().within(quoted_profile(profile.name)));
  if (*found || !wanted) return found;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} (AWS_PROFILE) has no keys in {} or {}", quoted_profile(profile.name),
                          profile.credentials_path, profile.config_path));
}

}  // namespace deepfreeze
