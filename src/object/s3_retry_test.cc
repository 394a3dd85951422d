// Requests that are tried again, and those that are not.
#include <atomic>

#include "object/fake_store.h"
#include "object/s3_exchange.h"
#include "object/s3_text.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

class S3RetryTest : public FakeStoreTest {};

HttpResponse bodiless(int status) { return {.status = status}; }

TEST_F(S3RetryTest, PassingFaultsAreTriedAgain) {
  store_->plant("key", "text");
  for (const S3Fault fault : {S3Fault::kInternalError, S3Fault::kSlowDown, S3Fault::kLostBefore,
                              S3Fault::kLostAfter, S3Fault::kTimeout}) {
    fail_next(fault);
    const std::size_t before = store_->request_count();
    EXPECT_EQ(client_->head("key")->bytes, 4U) << static_cast<int>(fault);
    EXPECT_EQ(store_->request_count(), before + 2);
  }
  for (const HttpResponse& answer :
       {bodiless(500), bodiless(502), bodiless(503), bodiless(504), bodiless(429),
        FakeS3::error(400, "RequestTimeout"), FakeS3::error(409, "OperationAborted"),
        FakeS3::error(400, "BadDigest"), FakeS3::error(400, "XAmzContentChecksumMismatch"),
        FakeS3::error(400, "XAmzContentSHA256Mismatch"), FakeS3::error(400, "MalformedXML")}) {
    answer_next(answer);
    EXPECT_TRUE(client_->head("key")) << answer.status;
  }
}

TEST_F(S3RetryTest, OtherAnswersAreFinal) {
  for (const HttpResponse& answer :
       {FakeS3::error(401, "Any"), FakeS3::error(403, "AccessDenied"),
        FakeS3::error(404, "NoSuchBucket"), FakeS3::error(400, "InvalidRequest"),
        FakeS3::error(501, "NotImplemented"), FakeS3::error(507, "Full"), bodiless(301)}) {
    answer_next(answer);
    EXPECT_FALSE(client_->remove("key")) << answer.status;
  }
  EXPECT_EQ(store_->request_count(), 0U) << "the store saw a second try";
}

TEST_F(S3RetryTest, TriesHaveABoundAndThePausesToo) {
  answer_always(FakeS3::error(500, "InternalError"));
  const auto removed = client_->remove("key");
  ASSERT_EQ(code_of(removed), ErrorCode::kTimeout);
  EXPECT_NE(message_of(removed).find("500 InternalError, as the test says (request R1); tried 8 "
                                     "times"),
            std::string::npos)
      << message_of(removed);
  EXPECT_LT(time_.slept(), 2 * 7 * kRetryPauseMax);
  EXPECT_GT(time_.slept(), milliseconds(0));
  store_->set_hook([](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
    return std::unexpected(Error(ErrorCode::kTimeout, "no answer"));
  });
  EXPECT_EQ(code_of(client_->remove("key")), ErrorCode::kTimeout);
}

// The bound doubles, and the mean of many pauses is half of it.
TEST_F(S3RetryTest, PausesGrowAndAreDrawnAtRandom) {
  constexpr int kRounds = 40;
  std::array<milliseconds, kTriesMax - 1> sums{};
  for (int round = 0; round < kRounds; ++round) {
    S3Client client(settings_);
    std::size_t tries = 0;
    auto before = time_.slept();
    store_->set_hook([&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
      if (tries > 0) sums[tries - 1] += time_.slept() - before;
      before = time_.slept();
      ++tries;
      return FakeS3::error(500, "InternalError");
    });
    EXPECT_FALSE(client.remove("key"));
    ASSERT_EQ(tries, static_cast<std::size_t>(kTriesMax));
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto bound = kRounds * std::min(kRetryPauseMin * (1 << i), kRetryPauseMax);
    EXPECT_LT(sums[i], bound * 4 / 5) << i;
    EXPECT_GT(sums[i], bound / 5) << i;
  }
}

TEST_F(S3RetryTest, RetryAfterIsRespectedWithinTheBound) {
  HttpResponse slow = FakeS3::error(503, "SlowDown");
  slow.fields.push_back({"retry-after", "7"});
  answer_next(slow);
  ASSERT_TRUE(client_->remove("key"));
  EXPECT_EQ(time_.slept(), milliseconds(7'000));
  slow.fields.back().value = "999999999999";
  answer_next(slow);
  ASSERT_TRUE(client_->remove("key"));
  EXPECT_EQ(time_.slept(), milliseconds(7'000) + kRetryPauseMax);
}

TEST_F(S3RetryTest, AnOutageDoesNotMultiplyTheLoad) {
  std::size_t requests = 0;
  store_->set_hook([&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
    ++requests;
    return FakeS3::error(503, "SlowDown");
  });
  constexpr std::size_t kCalls = 1'000;
  for (std::size_t i = 0; i < kCalls; ++i) ASSERT_FALSE(client_->remove("key"));
  EXPECT_EQ(requests, kCalls + 100);  // the budget
  EXPECT_NE(message_of(client_->remove("key")).find("too many requests have failed"),
            std::string::npos);
  store_->set_hook({});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client_->remove("key"));  // they earn one retry
  answer_next(FakeS3::error(500, "InternalError"));
  EXPECT_TRUE(client_->remove("key"));
  answer_next(FakeS3::error(500, "InternalError"));
  EXPECT_TRUE(client_->remove("key")) << "a retry that succeeded gives its cost back";
}

TEST_F(S3RetryTest, StopEndsARequestAndThePauseBeforeTheNext) {
  S3Client client(settings_);
  int requests = 0;
  store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    EXPECT_TRUE(request.stop != nullptr && !*request.stop);
    if (++requests == 2) {
      client.stop();
      EXPECT_TRUE(*request.stop);
    }
    HttpResponse slow = FakeS3::error(503, "SlowDown");
    slow.fields.push_back({"retry-after", "20"});
    return slow;
  });
  EXPECT_EQ(code_of(client.remove("key")), ErrorCode::kCancelled);
  EXPECT_EQ(requests, 2);
  EXPECT_LT(time_.slept(), milliseconds(20'200));
  EXPECT_EQ(code_of(client.remove("key")), ErrorCode::kCancelled);
  EXPECT_EQ(requests, 2);
}

TEST_F(S3RetryTest, AnAbortIsTriedOnceAfterTheStop) {
  S3Client client(settings_);
  client.stop();
  const std::string id = store_->plant_upload("big");
  EXPECT_TRUE(client.abort("big", id));
  EXPECT_EQ(store_->open_uploads(), 0U);
  int requests = 0;
  store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    EXPECT_EQ(request.stop, nullptr);
    EXPECT_LE(request.silence_max, milliseconds(5'000));
    ++requests;
    return FakeS3::error(500, "InternalError");
  });
  EXPECT_EQ(code_of(client.abort("big", id)), ErrorCode::kTimeout);
  EXPECT_EQ(requests, 1);
}

TEST_F(S3RetryTest, AnExpiredTokenIsReplacedOnce) {
  const auto keys = std::make_shared<FakeKeys>();
  settings_.credentials = keys;
  S3Client client(settings_);
  fail_next(S3Fault::kExpiredToken);
  EXPECT_TRUE(client.remove("key"));
  EXPECT_EQ(keys->refusals, 1);
  EXPECT_EQ(time_.slept(), milliseconds(0));
  answer_always(FakeS3::error(403, "ExpiredToken"));
  const auto removed = client.remove("key");
  EXPECT_EQ(code_of(removed), ErrorCode::kInvalidArgument);
  EXPECT_EQ(keys->refusals, 2);
  answer_next(bodiless(400));
  EXPECT_EQ(code_of(client.head("key")), ErrorCode::kNotFound) << "a HEAD's answer has no code";
  EXPECT_EQ(keys->refusals, 3);
}

TEST_F(S3RetryTest, TheStoresClockIsTakenOnce) {
  constexpr std::chrono::hours kAhead{3};
  const std::string date = "Fri, 27 Nov 2026 22:51:33 GMT";
  HttpResponse skewed = FakeS3::error(403, "RequestTimeTooSkewed");
  EXPECT_EQ(client_->now(), time_.now());
  answer_next(skewed);
  EXPECT_EQ(code_of(client_->remove("key")), ErrorCode::kInvalidArgument) << "no date";
  skewed.fields.push_back({"date", date});
  answer_next(skewed);
  EXPECT_TRUE(client_->remove("key"));
  EXPECT_EQ(client_->now(), *parse_http_date(date));
  time_.advance(kAhead);
  EXPECT_EQ(client_->now(), *parse_http_date(date) + kAhead);
  answer_always(skewed);
  const auto removed = client_->remove("key");
  EXPECT_EQ(code_of(removed), ErrorCode::kInvalidArgument);
  EXPECT_NE(message_of(removed).find("Set this machine's clock"), std::string::npos);
}

TEST_F(S3RetryTest, AHeadThatIsForbiddenBecauseOfTheClockIsFoundOut) {
  HttpResponse forbidden = bodiless(403);
  forbidden.fields.push_back({"date", "Fri, 27 Nov 2037 22:51:33 GMT"});
  store_->plant("key", "text");
  answer_next(forbidden);
  EXPECT_TRUE(client_->head("key"));
  EXPECT_EQ(client_->now(), *parse_http_date(forbidden.fields[0].value));
  answer_next(forbidden);
  EXPECT_EQ(code_of(client_->head("key")), ErrorCode::kInvalidArgument) << "the clock is right";
}

TEST_F(S3RetryTest, AnotherRegionIsSignedForFromThenOn) {
  store_->set_region("eu-west-7");
  EXPECT_TRUE(client_->remove("key"));
  EXPECT_EQ(store_->request_count(), 2U);
  EXPECT_TRUE(client_->remove("key"));
  EXPECT_EQ(store_->request_count(), 3U);
}

TEST_F(S3RetryTest, ARedirectionGivesTheRegionInAField) {
  for (const int status : {301, 307}) {
    settings_.place.endpoint = "https://s3.us-east-1.amazonaws.com";
    S3Client client(settings_);
    std::string url;
    store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
      const bool is_first = url.empty();
      url = request.url;
      if (!is_first) return bodiless(204);
      return HttpResponse{.status = status, .fields = {{"x-amz-bucket-region", "eu-west-7"}}};
    });
    EXPECT_TRUE(client.remove("key"));
    EXPECT_TRUE(url.starts_with("https://s3.eu-west-7.amazonaws.com/")) << url;
  }
}

TEST_F(S3RetryTest, ARegionIsTriedOnceAndMustLookLikeOne) {
  answer_always(FakeS3::error(400, "AuthorizationHeaderMalformed", "<Region>eu-west-7</Region>"));
  EXPECT_EQ(code_of(client_->remove("key")), ErrorCode::kIo);
  int requests = 0;
  store_->set_hook([&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
    ++requests;
    return FakeS3::error(301, "PermanentRedirect", "<Region>evil.example/</Region>");
  });
  EXPECT_EQ(code_of(client_->remove("key")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(requests, 1);
}

TEST_F(S3RetryTest, NoKeysAreNotAMissingObject) {
  class NoKeys final : public CredentialSource {
   public:
    Result<Credentials> get() override {
      return std::unexpected(Error(ErrorCode::kNotFound, "no keys anywhere"));
    }
    void refuse(const Credentials& /*refused*/) override {}
  };
  settings_.credentials = std::make_shared<NoKeys>();
  S3Client client(settings_);
  const auto looked = client.head("key");
  EXPECT_EQ(code_of(looked), ErrorCode::kInvalidArgument);
  EXPECT_NE(message_of(looked).find("look at s3://bucket/runs/a/key: no keys"), std::string::npos);
}

// Nothing was sent: nobody's upload may be ended for it.
TEST_F(S3RetryTest, KeysThatAreLateAreNoRequestThatWasLost) {
  class LateKeys final : public FakeKeys {
   public:
    Result<Credentials> get() override {
      if (++asked < 3) return std::unexpected(Error(ErrorCode::kIo, "not yet"));
      return FakeKeys::get();
    }
    int asked = 0;
  };
  settings_.credentials = std::make_shared<LateKeys>();
  S3Client client(settings_);
  const std::string others = store_->plant_upload("big");
  ASSERT_TRUE(client.begin_upload("big"));
  EXPECT_EQ(store_->request_count(), 1U);
  EXPECT_EQ(store_->open_uploads(), 2U);
  EXPECT_GT(time_.slept(), milliseconds(0));
}

TEST_F(S3RetryTest, KeysThatNeverComeAreAskedForSomeTimes) {
  class NoKeys final : public FakeKeys {
   public:
    Result<Credentials> get() override {
      ++asked;
      return std::unexpected(Error(code, "none"));
    }
    ErrorCode code = ErrorCode::kIo;
    int asked = 0;
  };
  const auto keys = std::make_shared<NoKeys>();
  settings_.credentials = keys;
  S3Client client(settings_);
  EXPECT_EQ(code_of(client.head("key")), ErrorCode::kTimeout);
  EXPECT_EQ(keys->asked, kTriesMax);
  keys->code = ErrorCode::kInvalidArgument;
  EXPECT_EQ(code_of(client.head("key")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(keys->asked, kTriesMax + 1);
  EXPECT_EQ(store_->request_count(), 0U);
}

}  // namespace
}  // namespace deepfreeze
