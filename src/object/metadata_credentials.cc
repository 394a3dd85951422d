#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/try.h"
#include "object/credential_answer.h"
#include "object/credential_places.h"
#include "object/signature.h"
#include "object/url_parts.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kMetadataWholeMax{5'000};
constexpr std::string_view kRoles = "/latest/meta-data/iam/security-credentials/";
constexpr std::size_t kRoleBytesMax = 64;  // of IAM

std::unexpected<Error> not_in_use(std::string_view why) {
  return fail(ErrorCode::kNotFound, std::string(why));
}

bool is_metadata_disabled(const Environment& environment) {
  std::string value = value_of(environment, "AWS_EC2_METADATA_DISABLED").value_or("");
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
  return value == "true";
}

Result<std::string> metadata_endpoint(const Environment& environment) {
  auto url = value_of(environment, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (!url) return "http://169.254.169.254";
  const auto parts = split_url(*url);
  if (!parts || !parts->query.empty()) {
    return fail(ErrorCode::kInvalidArgument, "AWS_EC2_METADATA_SERVICE_ENDPOINT is not a URL");
  }
  while (url->ends_with('/')) url->pop_back();
  return *url;
}

HttpRequest metadata_request(std::string method, std::string url, HttpField field) {
  return {.method = std::move(method),
          .url = std::move(url),
          .fields = {std::move(field)},
          .silence_max = kMetadataSilenceMax,
          .whole_max = kMetadataWholeMax};
}

// Whether there is a service at all shows here.
Result<Secret> metadata_token(HttpTransport& transport, const std::string& service) {
  auto answer =
      ask_service(transport, metadata_request("PUT", service + "/latest/api/token",
                                              {"x-aws-ec2-metadata-token-ttl-seconds", "21600"}));
  if (!answer) return not_in_use(answer.error().message());
  if (answer->status != 200) {
    return not_in_use(fmt::format("it gives no token (status {})", answer->status));
  }
  if (answer->body.empty() || !is_plain_token(answer->body.text())) {
    return not_in_use("it gives no token");
  }
  return std::move(answer->body);
}

Result<Secret> read_metadata(HttpTransport& transport, std::string url, const Secret& token) {
  auto answer = ask_service(
      transport,
      metadata_request("GET", std::move(url), {"x-aws-ec2-metadata-token", token.text()}));
  if (!answer) return service_silence(answer.error());
  if (answer->status == 404) return not_in_use("no role is attached to the machine");
  if (answer->status != 200) return service_refusal(answer->status);
  return std::move(answer->body);
}

bool is_role(std::string_view name) {
  return !name.empty() && name.size() <= kRoleBytesMax && is_plain_token(name) &&
         name.find_first_of("/?#%\\") == std::string_view::npos;
}

}  // namespace

Result<Credentials> keys_of_metadata(HttpTransport& transport, const Environment& environment) {
  if (is_metadata_disabled(environment)) return not_in_use("AWS_EC2_METADATA_DISABLED is true");
  DF_TRY(const std::string service, metadata_endpoint(environment));
  DF_TRY(const Secret token, metadata_token(transport, service));
  const std::string roles = fmt::format("{}{}", service, kRoles);
  DF_TRY(const Secret listed, read_metadata(transport, roles, token));
  const std::string_view role =
      std::string_view(listed.text()).substr(0, listed.text().find_first_of("\r\n"));
  if (!is_role(role)) {
    return fail(ErrorCode::kIo, "it names no role");
  }
  DF_TRY(const Secret keys, read_metadata(transport, roles + uri_encode(role, false), token));
  return parse_keys_json(keys.text(), KeysFrom::kService);
}

}  // namespace deepfreeze
