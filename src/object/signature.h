// Signature Version 4 of AWS, which other S3-compatible stores take as well
// (docs.aws.amazon.com, "Signature Version 4 for API requests"). SHA-256 and HMAC are OpenSSL's.
// Pure functions.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "object/credentials.h"
#include "object/http.h"

namespace deepfreeze {

struct SigningScope {
  std::string region = "us-east-1";
  std::string service = "s3";
  // The body's SHA-256 is signed, as every other service than S3 expects; else x-amz-content-sha256
  // says UNSIGNED-PAYLOAD, and a checksum field protects the body against accidents, TLS against
  // people.
  bool signs_body = false;
};

// Adds host, x-amz-date, x-amz-security-token, authorization and, for S3, x-amz-content-sha256, in
// place of those that an earlier call has added. All fields are signed. The path is signed as it
// stands in the URL, as S3 wants it. kInvalidArgument: no URL; kUnsupported: this machine has no
// OpenSSL.
[[nodiscard]] Status sign(HttpRequest& request, const Credentials& credentials,
                          const SigningScope& scope, std::chrono::system_clock::time_point now);

// RFC 3986: everything but letters, digits and "-._~" becomes %XX; "/" stays if `keeps_slashes`.
[[nodiscard]] std::string uri_encode(std::string_view text, bool keeps_slashes);

}  // namespace deepfreeze
