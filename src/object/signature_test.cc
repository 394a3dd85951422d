// Expected signatures: the examples of "Authenticating Requests: Using the Authorization Header" in
// the reference of Amazon S3, and the cases of aws-sig-v4-test-suite; those for which another
// source is named were computed with botocore 1.44.8. botocore gives the others as well.
#include "object/signature.h"

#include <gtest/gtest.h>

namespace deepfreeze {
namespace {

using std::chrono::sys_days;
using std::chrono::year;

const std::chrono::system_clock::time_point kS3Time = sys_days(year(2013) / 5 / 24);
const std::chrono::system_clock::time_point kSuiteTime =
    sys_days(year(2015) / 8 / 30) + std::chrono::hours(12) + std::chrono::minutes(36);

std::string field_of(const HttpRequest& request, std::string_view name) {
  std::string values;
  for (const HttpField& field : request.fields) {
    if (field.name == name) values += (values.empty() ? "" : "|") + field.value;
  }
  return values;
}

std::span<const std::byte> body_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Credentials s3_keys() {
  return {.access_key = "AKIAIOSFODNN7EXAMPLE",
          .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
}

Credentials suite_keys() {
  return {.access_key = "AKIDEXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
}

// "names of the signed fields, signature"
std::string signed_part(const HttpRequest& request, std::string_view scope) {
  const std::string authorization = field_of(request, "authorization");
  const std::string head =
      "AWS4-HMAC-SHA256 Credential=" + std::string(scope) + "/aws4_request,SignedHeaders=";
  EXPECT_TRUE(authorization.starts_with(head)) << authorization;
  std::string rest = authorization.substr(std::min(head.size(), authorization.size()));
  const auto middle = rest.find(",Signature=");
  return middle == std::string::npos ? rest : rest.replace(middle, 11, " ");
}

std::string sign_as_s3(HttpRequest request) {
  EXPECT_TRUE(sign(request, s3_keys(), {.signs_body = true}, kS3Time));
  return signed_part(request, "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3");
}

std::string sign_as_suite(HttpRequest request, Credentials keys = suite_keys()) {
  request.url = "https://example.amazonaws.com" + request.url;
  EXPECT_TRUE(sign(request, keys, {.service = "service"}, kSuiteTime));
  return signed_part(request, "AKIDEXAMPLE/20150830/us-east-1/service");
}

TEST(Signature, S3GetObject) {
  EXPECT_EQ(sign_as_s3({.method = "GET",
                        .url = "https://examplebucket.s3.amazonaws.com/test.txt",
                        .fields = {{"range", "bytes=0-9"}}}),
            "host;range;x-amz-content-sha256;x-amz-date "
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(Signature, S3PutObject) {
  EXPECT_EQ(sign_as_s3({.method = "PUT",
                        .url = "https://examplebucket.s3.amazonaws.com/test%24file.text",
                        .fields = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                   {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                        .body = body_of("Welcome to Amazon S3.")}),
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class "
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(Signature, S3GetBucketLifecycle) {
  EXPECT_EQ(
      sign_as_s3({.method = "GET", .url = "https://examplebucket.s3.amazonaws.com/?lifecycle"}),
      "host;x-amz-content-sha256;x-amz-date "
      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(Signature, S3ListObjects) {
  EXPECT_EQ(sign_as_s3({.method = "GET",
                        .url = "https://examplebucket.s3.amazonaws.com/?prefix=J&max-keys=2"}),
            "host;x-amz-content-sha256;x-amz-date "
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(Signature, SuiteVanilla) {
  EXPECT_EQ(sign_as_suite({.method = "GET", .url = "/"}),
            "host;x-amz-date 5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(sign_as_suite({.method = "GET", .url = ""}),
            "host;x-amz-date 5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_EQ(sign_as_suite({.method = "POST", .url = "/"}),
            "host;x-amz-date 5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
}

TEST(Signature, SuiteQueryOrderAndUtf8) {
  EXPECT_EQ(sign_as_suite({.method = "GET", .url = "/?Param2=value2&Param1=value1"}),
            "host;x-amz-date b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
  EXPECT_EQ(sign_as_suite({.method = "GET", .url = "/" + uri_encode("\u1234", true)}),
            "host;x-amz-date 8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85");
}

TEST(Signature, SuiteFields) {
  EXPECT_EQ(sign_as_suite({.method = "POST", .url = "/", .fields = {{"my-header1", "value1"}}}),
            "host;my-header1;x-amz-date "
            "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c");
  EXPECT_EQ(
      sign_as_suite({.method = "GET",
                     .url = "/",
                     .fields = {{"my-header1", " value1 "}, {"my-header2", "\t\"a   b   c\""}}}),
      "host;my-header1;my-header2;x-amz-date "
      "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
  EXPECT_EQ(sign_as_suite({.method = "GET",
                           .url = "/",
                           .fields = {{"my-header1", "value2"},
                                      {"my-header1", "value2"},
                                      {"my-header1", "value1"}}}),
            "host;my-header1;x-amz-date "
            "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea");
}

TEST(Signature, SuiteBody) {
  EXPECT_EQ(sign_as_suite({.method = "POST",
                           .url = "/",
                           .fields = {{"content-type", "application/x-www-form-urlencoded"}},
                           .body = body_of("Param1=value1")}),
            "content-type;host;x-amz-date "
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
}

TEST(Signature, SuiteSessionToken) {
  Credentials keys = suite_keys();
  keys.session_token =
      "AQoDYXdzEPT//////////"
      "wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfI"
      "eoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/"
      "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0"
      "wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+"
      "scqKmlzm8FDry"
      "pNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
  EXPECT_EQ(sign_as_suite({.method = "POST", .url = "/"}, keys),
            "host;x-amz-date;x-amz-security-token "
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
}

// As the requests of a tier look: a port, escapes in the path, an unsigned body. botocore's.
HttpRequest part(const std::string& server) {
  return {.method = "PUT",
          .url = server + "/bucket/" + uri_encode("a b/c+d", true) +
                 "?partNumber=2&uploadId=x-1&a-b=1&a=2",
          .fields = {{"x-amz-checksum-crc32c", "AAAAAA=="}},
          .body = body_of("abc")};
}

std::string sign_part(HttpRequest& request) {
  Credentials keys = s3_keys();
  keys.session_token = "TOKEN/with+letters==";
  EXPECT_TRUE(sign(request, keys, {}, kS3Time));
  EXPECT_EQ(field_of(request, "x-amz-content-sha256"), "UNSIGNED-PAYLOAD");
  EXPECT_EQ(field_of(request, "x-amz-date"), "20130524T000000Z");
  EXPECT_EQ(field_of(request, "x-amz-security-token"), "TOKEN/with+letters==");
  return signed_part(request, "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3");
}

constexpr std::string_view kFieldsOfPart =
    "host;x-amz-checksum-crc32c;x-amz-content-sha256;x-amz-date;x-amz-security-token ";

TEST(Signature, OfAPartOnAPortOfItsOwn) {
  HttpRequest request = part("https://127.0.0.1:8333");
  EXPECT_EQ(sign_part(request),
            std::string(kFieldsOfPart) +
                "7ec80bed4be57a3afb1843c13e0cae8d2644e7e11a275fcc7ebcb3a9e04db025");
  EXPECT_EQ(field_of(request, "host"), "127.0.0.1:8333");
}

TEST(Signature, ThePortOfTheSchemeIsNotInTheHost) {
  for (const std::string server : {"https://h.example:443", "https://h.example"}) {
    HttpRequest request = part(server);
    EXPECT_EQ(sign_part(request),
              std::string(kFieldsOfPart) +
                  "18212539cec54ce083b9e8a092aed1d1051d5f7ab956153fd8bd43d9800f5e87");
    EXPECT_EQ(field_of(request, "host"), "h.example");
  }
  for (const auto& [server, host] :
       {std::pair("http://h.example:80", "h.example"),
        std::pair("http://h.example:443", "h.example:443"),
        std::pair("https://h.example:80", "h.example:80"), std::pair("http://[::1]:80", "[::1]")}) {
    HttpRequest request = part(server);
    EXPECT_FALSE(sign_part(request).empty());
    EXPECT_EQ(field_of(request, "host"), host);
  }
}

TEST(Signature, ASecondOneReplacesTheFirst) {
  HttpRequest request = part("https://127.0.0.1:8333");
  Credentials other{.access_key = "OTHER", .secret_key = "other", .session_token = "other"};
  ASSERT_TRUE(sign(request, other, {.signs_body = true}, kSuiteTime));
  EXPECT_EQ(sign_part(request),
            std::string(kFieldsOfPart) +
                "7ec80bed4be57a3afb1843c13e0cae8d2644e7e11a275fcc7ebcb3a9e04db025");
  const auto field_count = request.fields.size();
  ASSERT_TRUE(sign(request, s3_keys(), {}, kS3Time));  // these keys have no token
  EXPECT_EQ(field_of(request, "x-amz-security-token"), "");
  EXPECT_EQ(request.fields.size(), field_count - 1);
}

TEST(Signature, TheTimeIsInUtcToTheSecond) {
  HttpRequest request = part("https://127.0.0.1:8333");
  const auto time = sys_days(year(2026) / 12 / 31) + std::chrono::hours(23) +
                    std::chrono::minutes(5) + std::chrono::milliseconds(9'999);
  ASSERT_TRUE(sign(request, s3_keys(), {}, time));
  EXPECT_EQ(field_of(request, "x-amz-date"), "20261231T230509Z");
}

TEST(Signature, OfNoUrlIsRefused) {
  HttpRequest request{.method = "GET", .url = "example.org/"};
  const Status done = sign(request, s3_keys(), {}, kS3Time);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), ErrorCode::kInvalidArgument);
}

TEST(Signature, UriEncode) {
  const std::string plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  EXPECT_EQ(uri_encode(plain, false), plain);
  EXPECT_EQ(uri_encode("a/b c+\xc3\xa4\n", true), "a/b%20c%2B%C3%A4%0A");
  EXPECT_EQ(uri_encode("a/b", false), "a%2Fb");
  EXPECT_EQ(uri_encode("`{@[^", false), "%60%7B%40%5B%5E");
}

}  // namespace
}  // namespace deepfreeze
