#include <algorithm>
#include <array>

#include "base/try.h"
#include "object/credential_answer.h"
#include "object/credential_places.h"
#include "object/url_parts.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kContainerSilenceMax{2'000};
constexpr std::chrono::milliseconds kContainerWholeMax{10'000};

// Beside loopback: ECS and EKS answer there, and no other machine.
constexpr std::array<std::string_view, 3> kContainerHosts = {"169.254.170.2", "169.254.170.23",
                                                             "fd00:ec2::23"};

bool may_be_asked(std::string_view url) {
  const auto parts = split_url(url);
  if (!parts) return false;
  return parts->is_encrypted || is_loopback(parts->host) ||
         std::ranges::find(kContainerHosts, parts->host) != kContainerHosts.end();
}

Result<std::optional<std::string>> container_address(const Environment& environment) {
  if (const auto relative = value_of(environment, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")) {
    if (!relative->starts_with('/') || !is_plain_token(*relative)) {
      return fail(ErrorCode::kInvalidArgument,
                  "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not a path");
    }
    return "http://169.254.170.2" + *relative;
  }
  auto full = value_of(environment, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (full && !may_be_asked(*full)) {
    return fail(ErrorCode::kInvalidArgument,
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this "
                "machine (loopback, 169.254.170.2, 169.254.170.23, fd00:ec2::23)");
  }
  return full;
}

Result<Secret> container_authorization(const Environment& environment) {
  Secret token;
  if (const auto file = value_of(environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
    DF_TRY(token, read_token_file(*file));
  } else if (auto given = value_of(environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN")) {
    token = std::move(*given);
  }
  const auto ends_field = [](char c) { return c < ' ' || c > '~'; };
  if (!std::ranges::any_of(token.text(), ends_field)) return token;
  return fail(ErrorCode::kInvalidArgument,
              "the authorization token has letters that are not ASCII");
}

}  // namespace

FoundKeys keys_of_container(HttpTransport& transport, const Environment& environment) {
  DF_TRY(auto url, container_address(environment));
  if (!url) return std::nullopt;
  DF_TRY(const Secret token, container_authorization(environment));
  std::vector<HttpField> fields{{"accept", "application/json"}};
  if (!token.empty()) fields.push_back({"authorization", token.text()});
  const auto answer = ask_service(transport, {.method = "GET",
                                              .url = std::move(*url),
                                              .fields = std::move(fields),
                                              .silence_max = kContainerSilenceMax,
                                              .whole_max = kContainerWholeMax});
  // The path is a secret: a process that knows it may have the keys.
  if (!answer) return service_silence(answer.error());
  if (answer->status != 200) return service_refusal(answer->status);
  return parse_keys_json(answer->body.text(), KeysFrom::kService);
}

}  // namespace deepfreeze
