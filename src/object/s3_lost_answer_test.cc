// Answers that were lost, and the meaning of the next one.
#include "object/fake_store.h"

namespace deepfreeze {
namespace {

class S3LostAnswerTest : public FakeStoreTest {
 protected:
  void SetUp() override { std::ignore = begin(); }
  std::string begin() {
    id_ = client_->begin_upload("big").value_or("");
    const auto part = client_->put_part("big", id_, 1, bytes_of(kText), crc_of_text(kText));
    if (part) parts_ = {*part};
    return id_;
  }
  Status complete(IfPresent if_present = IfPresent::kRefuse) {
    return client_->complete("big", id_, parts_,
                             {.bytes = kText.size(), .crc32c = crc_of_text(kText)}, if_present);
  }
  // Another client puts `text`, and then the store fails as if nothing had happened.
  void put_by_another(std::string key, std::string text) {
    store_->set_hook([this, key, text, is_done = false](const HttpRequest& /*request*/) mutable
                         -> std::optional<Result<HttpResponse>> {
      if (std::exchange(is_done, true)) return std::nullopt;
      store_->plant(key, text);
      return FakeS3::error(500, "InternalError");
    });
  }

  static constexpr std::string_view kText = "text";
  std::string id_;
  std::vector<UploadedPart> parts_;
};

TEST_F(S3LostAnswerTest, A412IsOurOwnSuccess) {
  fail_next(S3Fault::kLostAfter);
  EXPECT_EQ(message_of(put("key", kText)), "");
  EXPECT_EQ(store_->contents("key"), kText);
  fail_next(S3Fault::kLostAfter);
  EXPECT_EQ(message_of(complete()), "");
  EXPECT_EQ(store_->contents("big"), kText);
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(S3LostAnswerTest, A412IsAnothersSuccessIfItsBytesDiffer) {
  for (const char* other : {"else", "longer"}) {
    put_by_another(other, other);
    EXPECT_EQ(code_of(put(other, kText)), ErrorCode::kExists) << other;
  }
  put_by_another("big", "else");
  EXPECT_EQ(code_of(complete()), ErrorCode::kExists);
  put_by_another("big", std::string(kText));  // as if the checksums were equal by chance
  const ObjectInfo longer{.bytes = kText.size() + 1, .crc32c = crc_of_text(kText)};
  EXPECT_EQ(code_of(client_->complete("big", id_, parts_, longer, IfPresent::kRefuse)),
            ErrorCode::kExists);
}

TEST_F(S3LostAnswerTest, WithoutAChecksumOfTheStoreTheCallerHasToLook) {
  store_->forget_checksums();
  fail_next(S3Fault::kLostAfter);
  EXPECT_EQ(code_of(put("key", kText)), ErrorCode::kExists);
}

TEST_F(S3LostAnswerTest, ALookThatFailsIsTheError) {
  fail_next(S3Fault::kLostAfter);
  store_->set_hook([](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.method == "HEAD") return FakeS3::error(403, "AccessDenied");
    return std::nullopt;
  });
  EXPECT_EQ(code_of(put("key", kText)), ErrorCode::kInvalidArgument);
}

TEST_F(S3LostAnswerTest, A412ThatIsTheFirstAnswerIsNotLookedInto) {
  store_->plant("key", std::string(kText));
  EXPECT_EQ(code_of(put("key", kText)), ErrorCode::kExists);
}

TEST_F(S3LostAnswerTest, AConflictLooksAgain) {
  fail_next(S3Fault::kConflict);
  EXPECT_EQ(message_of(put("key", kText)), "");
  fail_next(S3Fault::kConflict);
  EXPECT_EQ(message_of(complete()), "");
}

TEST_F(S3LostAnswerTest, AnErrorInTheBodyOf200IsNoSuccess) {
  fail_next(S3Fault::kErrorInBody);
  EXPECT_EQ(message_of(complete()), "");
  EXPECT_EQ(store_->contents("big"), kText);
  begin();
  answer_next(FakeS3::error(200, "InvalidPart"));
  EXPECT_EQ(code_of(complete(IfPresent::kReplace)), ErrorCode::kIo);
  for (const char* body : {"", "   ", "<CompleteMultipartUploadResult/>", "<Complete"}) {
    HttpResponse answer{.status = 200};
    answer.body = body;
    begin();
    ASSERT_TRUE(client_->remove("big"));
    answer_next(answer);
    EXPECT_EQ(message_of(complete()), "") << body;
    EXPECT_EQ(store_->contents("big"), kText) << body;
  }
}

TEST_F(S3LostAnswerTest, AnUploadOfThatTheAnswerWasLostIsAborted) {
  for (const S3Fault fault : {S3Fault::kLostAfter, S3Fault::kTimeout}) {
    fail_next(fault);
    const auto id = client_->begin_upload("other");
    ASSERT_TRUE(id);
    EXPECT_EQ(store_->open_uploads(), 2U) << "this one and the fixture's";
    ASSERT_TRUE(client_->abort("other", *id));
  }
}

TEST_F(S3LostAnswerTest, OnlyUploadsOfTheSameKeyAndTimeAreTakenForOurs) {
  const std::string long_ago = store_->plant_upload("other");
  time_.advance(std::chrono::minutes(16));
  store_->plant_upload("other-key");
  fail_next(S3Fault::kLostAfter);
  ASSERT_TRUE(client_->begin_upload("other"));
  EXPECT_EQ(store_->open_uploads(), 4U);
  EXPECT_EQ(client_->open_uploads("other")->size(), 3U);
}

TEST_F(S3LostAnswerTest, AnUploadThatNeverGotAnAnswerIsAbortedToo) {
  int begins = 0;
  store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.method != "POST") return std::nullopt;
    if (begins++ == 0) store_->plant_upload("other");
    return std::unexpected(Error(ErrorCode::kIo, "connection lost"));
  });
  EXPECT_EQ(code_of(client_->begin_upload("other")), ErrorCode::kTimeout);
  EXPECT_EQ(begins, kTriesMax);
  EXPECT_EQ(store_->open_uploads(), 1U);
}

// Another process completes the file while an answer of ours is lost; our upload is open then.
TEST_F(S3LostAnswerTest, AnUploadThatWasNotNeededIsAborted) {
  put_by_another("big", std::string(kText));
  EXPECT_EQ(message_of(complete()), "");
  EXPECT_EQ(store_->open_uploads(), 0U);
}

}  // namespace
}  // namespace deepfreeze
