#include "object/s3_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "object/xml.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kBucketRegionBytesMax = 32;

template <std::size_t kCount>
bool is_one_of(std::string_view code, const std::array<std::string_view, kCount>& codes) {
  return std::ranges::find(codes, code) != codes.end();
}

// It becomes part of the signature and perhaps of a host's name.
bool is_bucket_region(std::string_view text) {
  return !text.empty() && text.size() <= kBucketRegionBytesMax &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

void read_body(const HttpResponse& response, S3Failure& failure) {
  const auto root = parse_xml(response.body);
  if (!root || root->name != "Error") return;
  failure.code = root->text_of("Code");
  failure.message = root->text_of("Message");
  if (failure.request_id.empty()) failure.request_id = root->text_of("RequestId");
  if (failure.region.empty()) failure.region = root->text_of("Region");
}

bool is_success_in_body(const HttpResponse& response) {
  const auto root = parse_xml(response.body);
  return root && root->child("ETag") != nullptr;
}

bool is_for_other_keys(const S3Failure& failure) {
  constexpr std::array<std::string_view, 3> kCodes = {"ExpiredToken", "InvalidToken",
                                                      "TokenRefreshRequired"};
  // A HEAD is answered without a code.
  return is_one_of(failure.code, kCodes) || (failure.code.empty() && failure.status == 400);
}

bool is_for_other_region(const S3Failure& failure) {
  const bool is_elsewhere = failure.status == 301 || failure.status == 307 ||
                            failure.code == "AuthorizationHeaderMalformed";
  return is_elsewhere && !failure.region.empty();
}

bool is_passing(const S3Failure& failure) {
  constexpr std::array<int, 5> kStatuses = {429, 500, 502, 503, 504};
  // The last four: bytes that were damaged on the way.
  constexpr std::array<std::string_view, 12> kCodes = {"RequestTimeout",
                                                       "SlowDown",
                                                       "InternalError",
                                                       "ServiceUnavailable",
                                                       "RequestThrottled",
                                                       "TooManyRequests",
                                                       "OperationAborted",
                                                       "ConditionalRequestConflict",
                                                       "BadDigest",
                                                       "XAmzContentChecksumMismatch",
                                                       "XAmzContentSHA256Mismatch",
                                                       "MalformedXML"};
  return std::ranges::find(kStatuses, failure.status) != kStatuses.end() ||
         is_one_of(failure.code, kCodes) ||
         // A Complete without any outcome: its connection was kept open and then cut.
         (failure.status == 200 && failure.code.empty());
}

ErrorCode code_of_failure(const S3Failure& failure) {
  constexpr std::array<std::string_view, 3> kFull = {"QuotaExceeded", "InsufficientStorage",
                                                     "XMinioStorageFull"};
  if (is_one_of(failure.code, kFull) || failure.status == 507) return ErrorCode::kNoSpace;
  if (failure.code == "NoSuchBucket") return ErrorCode::kInvalidArgument;
  if (failure.code == "PreconditionFailed") return ErrorCode::kExists;  // perhaps in a 200's body
  if (failure.code == "NoSuchUpload") return ErrorCode::kNotFound;
  switch (failure.status) {
    case 301:
    case 307:
    case 401:
    case 403:
      return ErrorCode::kInvalidArgument;
    case 404:
      return ErrorCode::kNotFound;
    case 412:
      return ErrorCode::kExists;
    case 501:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kIo;
  }
}

// A sentence about the mend.
std::string_view advice_on(const S3Failure& failure) {
  if (failure.code == "NoSuchBucket") return "there is no such bucket: make it, or check its name";
  if (failure.code == "SignatureDoesNotMatch") {
    return "the secret key does not belong to the access key, or a proxy changes requests";
  }
  if (failure.code == "InvalidAccessKeyId") {
    return "the store does not know the access key: check the keys and the endpoint";
  }
  if (failure.code == "RequestTimeTooSkewed") return "set this machine's clock";
  if (is_for_other_keys(failure)) {
    if (!failure.code.empty()) return "the session token has expired: renew it";
    return "is the endpoint http:// instead of https://, or has a session token expired?";
  }
  if (is_for_other_region(failure)) return "the bucket is in another region: set AWS_REGION to it";
  if (failure.status == 301 || failure.status == 307) {
    return "the bucket is at another endpoint: set AWS_ENDPOINT_URL_S3, or AWS_REGION";
  }
  if (failure.status == 401 || failure.status == 403) {
    return "the keys lack the right: docs/operations.md lists those that a tier needs";
  }
  return "";
}

}  // namespace

std::optional<S3Failure> find_failure(const HttpResponse& response, bool may_fail_in_body) {
  if (response.is_success() && !may_fail_in_body) return std::nullopt;
  if (response.is_success() && is_success_in_body(response)) return std::nullopt;
  S3Failure failure{.status = response.status};
  failure.request_id = response.field("x-amz-request-id").value_or("");
  failure.region = response.field("x-amz-bucket-region").value_or("");
  read_body(response, failure);
  if (!is_bucket_region(failure.region)) failure.region.clear();
  return failure;
}

Remedy remedy_for(const S3Failure& failure) {
  if (failure.code == "RequestTimeTooSkewed") return Remedy::kClock;
  if (is_for_other_keys(failure)) return Remedy::kKeys;
  if (is_for_other_region(failure)) return Remedy::kRegion;
  return is_passing(failure) ? Remedy::kWait : Remedy::kNone;
}

Error error_of(const S3Failure& failure, std::string_view subject) {
  std::string text = fmt::format("{}: {}", subject, failure.status);
  if (!failure.code.empty()) text += " " + printable(failure.code);
  if (!failure.message.empty()) text += ", " + printable(failure.message);
  if (!failure.request_id.empty()) {
    text += fmt::format(" (request {})", printable(failure.request_id));
  }
  if (const std::string_view advice = advice_on(failure); !advice.empty()) {
    text += fmt::format(". {}{}", static_cast<char>(advice[0] - 'a' + 'A'), advice.substr(1));
  }
  return {code_of_failure(failure), std::move(text)};
}

}  // namespace deepfreeze
