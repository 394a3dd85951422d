#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/try.h"
#include "object/credential_answer.h"
#include "object/credential_places.h"
#include "object/signature.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kStsSilenceMax{10'000};
constexpr std::chrono::milliseconds kStsWholeMax{30'000};

// An answer is searched for these, because its own words could repeat the token.
constexpr std::array<std::string_view, 9> kStsCodes = {"AccessDenied",
                                                       "ExpiredTokenException",
                                                       "IDPCommunicationError",
                                                       "IDPRejectedClaim",
                                                       "InvalidIdentityToken",
                                                       "MalformedPolicyDocument",
                                                       "RegionDisabledException",
                                                       "Throttling",
                                                       "ValidationError"};

bool is_sts_region(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Result<std::string> sts_url(const Environment& environment) {
  auto region = value_of(environment, "AWS_REGION");
  if (!region) region = value_of(environment, "AWS_DEFAULT_REGION");
  if (!region) return "https://sts.amazonaws.com/";
  if (!is_sts_region(*region)) {
    return fail(ErrorCode::kInvalidArgument, "AWS_REGION is not the name of a region");
  }
  const std::string_view end = region->starts_with("cn-") ? ".cn" : "";
  return fmt::format("https://sts.{}.amazonaws.com{}/", *region, end);
}

std::unexpected<Error> refused_by_sts(const ServiceAnswer& answer) {
  for (const std::string_view code : kStsCodes) {
    if (!answer.body.text().contains(fmt::format("<Code>{}</Code>", code))) continue;
    const bool may_pass = code == "IDPCommunicationError" || code == "Throttling";
    return fail(may_pass ? ErrorCode::kIo : ErrorCode::kInvalidArgument,
                fmt::format("STS refused with {} (status {})", code, answer.status));
  }
  return service_refusal(answer.status);
}

}  // namespace

Result<Credentials> assume_role(HttpTransport& transport, const Environment& environment,
                                const WebIdentity& identity) {
  DF_TRY(std::string url, sts_url(environment));
  DF_TRY(const Secret token, read_token_file(identity.token_file));
  const std::string_view name = identity.session_name;
  const Secret body(fmt::format(
      "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}"
      "&WebIdentityToken={}",
      uri_encode(identity.role, false), uri_encode(name.empty() ? "deepfreeze" : name, false),
      uri_encode(token.text(), false)));
  DF_TRY(const ServiceAnswer answer,
         ask_service(transport, {.method = "POST",
                                 .url = std::move(url),
                                 .fields = {{"accept", "application/xml"},
                                            {"content-type", "application/x-www-form-urlencoded"}},
                                 .body = std::as_bytes(std::span(body.text())),
                                 .silence_max = kStsSilenceMax,
                                 .whole_max = kStsWholeMax}));
  if (answer.status != 200) return refused_by_sts(answer);
  return parse_keys_xml(answer.body.text());
}

FoundKeys keys_of_web_identity(HttpTransport& transport, const Environment& environment) {
  const auto token_file = value_of(environment, "AWS_WEB_IDENTITY_TOKEN_FILE");
  if (!token_file) return std::nullopt;
  const auto role = value_of(environment, "AWS_ROLE_ARN");
  if (!role) {
    return fail(ErrorCode::kInvalidArgument,
                "AWS_WEB_IDENTITY_TOKEN_FILE is set, but not AWS_ROLE_ARN");
  }
  const std::string session = value_of(environment, "AWS_ROLE_SESSION_NAME").value_or("");
  return assume_role(transport, environment,
                     {.token_file = *token_file, .role = *role, .session_name = session});
}

}  // namespace deepfreeze
