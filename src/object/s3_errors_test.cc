#include "object/s3_errors.h"

#include <gtest/gtest.h>

#include "support/fake_s3.h"

namespace deepfreeze {
namespace {

Error error_for(const HttpResponse& answer) {
  return error_of(find_failure(answer, false).value(), "put s3://b/k");
}

TEST(S3Errors, ASuccessIsNone) {
  EXPECT_FALSE(find_failure({.status = 200}, false));
  EXPECT_FALSE(find_failure({.status = 204}, false));
  EXPECT_FALSE(find_failure({.status = 200, .body = "<R><ETag>x</ETag></R>"}, true));
  EXPECT_TRUE(find_failure({.status = 200, .body = "<R></R>"}, true));
}

TEST(S3Errors, HaveTheCodesThatCallersActOn) {
  struct Case {
    int status;
    const char* code;
    ErrorCode wanted;
  };
  for (const Case& each :
       {Case{404, "NoSuchKey", ErrorCode::kNotFound}, Case{404, "", ErrorCode::kNotFound},
        Case{404, "NoSuchUpload", ErrorCode::kNotFound},
        Case{200, "NoSuchUpload", ErrorCode::kNotFound},
        Case{404, "NoSuchBucket", ErrorCode::kInvalidArgument},
        Case{412, "PreconditionFailed", ErrorCode::kExists},
        Case{200, "PreconditionFailed", ErrorCode::kExists}, Case{400, "BadDigest", ErrorCode::kIo},
        Case{400, "XAmzContentChecksumMismatch", ErrorCode::kIo},
        Case{400, "XAmzContentSHA256Mismatch", ErrorCode::kIo},
        Case{403, "QuotaExceeded", ErrorCode::kNoSpace}, Case{507, "", ErrorCode::kNoSpace},
        Case{401, "", ErrorCode::kInvalidArgument},
        Case{403, "AccessDenied", ErrorCode::kInvalidArgument},
        Case{301, "PermanentRedirect", ErrorCode::kInvalidArgument},
        Case{501, "NotImplemented", ErrorCode::kUnsupported},
        Case{500, "InternalError", ErrorCode::kIo}, Case{400, "Other", ErrorCode::kIo}}) {
    EXPECT_EQ(error_of({.status = each.status, .code = each.code}, "").code(), each.wanted)
        << each.status << " " << each.code;
  }
}

TEST(S3Errors, SayWhatToDo) {
  const auto says = [](const HttpResponse& answer, std::string_view wanted) {
    const Error error = error_for(answer);
    EXPECT_NE(error.message().find(wanted), std::string::npos) << error.message();
  };
  says(FakeS3::error(404, "NoSuchBucket"), "There is no such bucket");
  says(FakeS3::error(403, "SignatureDoesNotMatch"), "The secret key does not belong");
  says(FakeS3::error(403, "InvalidAccessKeyId"), "does not know the access key");
  says(FakeS3::error(403, "AccessDenied"), "docs/operations.md");
  says(FakeS3::error(401, "Any"), "The keys lack the right");
  says(FakeS3::error(403, "ExpiredToken"), "The session token has expired");
  says(FakeS3::error(301, "PermanentRedirect"), "AWS_ENDPOINT_URL_S3");
  says(FakeS3::error(301, "PermanentRedirect", "<Region>eu-1</Region>"), "set AWS_REGION");
}

TEST(S3Errors, NameTheRequestAndHideControlCharacters) {
  HttpResponse answer{.status = 500,
                      .fields = {{"x-amz-request-id", "R\x1b[1m"}},
                      .body = "<Error><Code>Internal</Code><Message>a&#10;b</Message></Error>"};
  EXPECT_EQ(error_for(answer).message(), "put s3://b/k: 500 Internal, a\\x0ab (request R\\x1b[1m)");
  answer.body = "not XML";
  answer.fields.clear();
  EXPECT_EQ(error_for(answer).message(), "put s3://b/k: 500");
}

}  // namespace
}  // namespace deepfreeze
