#include "base/log.h"
#include "object/fake_store.h"
#include "object/object_tier.h"

namespace deepfreeze {
namespace {

class ObjectProbeTest : public FakeStoreTest {
 protected:
  ObjectProbeTest() {
    set_log_sink([this](std::string_view line) { logged_ += line; });
  }
  ~ObjectProbeTest() override { set_log_sink({}); }
  // Answers requests of that method, with that in their URL.
  void refuse(std::string method, std::string in_url, HttpResponse answer) {
    store_->set_hook([=](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
      const bool is_meant =
          request.method == method && request.url.find(in_url) != std::string::npos;
      return is_meant ? std::optional<Result<HttpResponse>>(answer) : std::nullopt;
    });
  }

  std::string logged_;
};

TEST_F(ObjectProbeTest, FindsWhatAStoreCan) {
  const auto found = probe(*client_, false);
  ASSERT_TRUE(found) << message_of(found);
  EXPECT_TRUE(found->has_conditional_writes);
  EXPECT_TRUE(found->keeps_checksums);
  EXPECT_TRUE(store_->keys().empty());
  store_->ignore_conditions();
  store_->forget_checksums();
  const auto weak = probe(*client_, false);
  ASSERT_TRUE(weak) << message_of(weak);
  EXPECT_FALSE(weak->has_conditional_writes);
  EXPECT_FALSE(weak->keeps_checksums);
  EXPECT_TRUE(store_->keys().empty());
  EXPECT_EQ(logged_, "");
}

TEST_F(ObjectProbeTest, ReadOnlyItOnlyLists) {
  store_->plant_upload("step-1/a");
  time_.advance(2 * kStaleUpload);
  ASSERT_TRUE(probe(*client_, true));
  EXPECT_EQ(store_->log(), std::vector<std::string>{"GET ?delimiter"});
  answer_next(FakeS3::error(404, "NoSuchBucket"));
  const auto found = probe(*client_, true);
  EXPECT_EQ(code_of(found), ErrorCode::kInvalidArgument);
  EXPECT_NE(message_of(found).find("There is no such bucket"), std::string::npos);
}

TEST_F(ObjectProbeTest, EachRightThatLacksIsAnErrorAndNothingStays) {
  const HttpResponse denied = FakeS3::error(403, "AccessDenied");
  for (const char* method : {"PUT", "HEAD"}) {
    refuse(method, "", denied);
    EXPECT_EQ(code_of(probe(*client_, false)), ErrorCode::kInvalidArgument) << method;
    EXPECT_TRUE(store_->keys().empty()) << method;
  }
  refuse("GET", "list-type", denied);
  EXPECT_EQ(code_of(probe(*client_, false)), ErrorCode::kInvalidArgument);
  refuse("GET", "probe.", denied);
  EXPECT_EQ(code_of(probe(*client_, false)), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(store_->keys().empty());
  refuse("DELETE", "", denied);
  EXPECT_EQ(code_of(probe(*client_, false)), ErrorCode::kInvalidArgument);
}

TEST_F(ObjectProbeTest, AStoreThatGivesOtherBytesIsRefused) {
  store_->fail_at(3, S3Fault::kFlippedAnswer);  // list, put, look at, get
  EXPECT_EQ(code_of(probe(*client_, false)), ErrorCode::kCorrupt);
  EXPECT_TRUE(store_->keys().empty());
}

// The finding is the same if any request fails once.
TEST_F(ObjectProbeTest, ALostAnswerIsNotTakenForAnAbility) {
  ASSERT_TRUE(probe(*client_, false));
  const std::size_t requests = store_->request_count();
  for (std::size_t n = 0; n < requests; ++n) {
    for (const S3Fault fault : {S3Fault::kLostAfter, S3Fault::kLostBefore, S3Fault::kTimeout}) {
      store_->fail_at(store_->request_count() + n, fault);
      const auto found = probe(*client_, false);
      ASSERT_TRUE(found) << message_of(found);
      EXPECT_TRUE(found->has_conditional_writes) << n;
      EXPECT_TRUE(store_->keys().empty()) << n;
    }
  }
}

TEST_F(ObjectProbeTest, EndsUploadsOfThisRunThatAreADayOld) {
  store_->plant_upload("step-1/a");
  store_->plant_upload("other/a");
  time_.advance(kStaleUpload);
  ASSERT_TRUE(probe(*client_, false));
  EXPECT_EQ(store_->open_uploads(), 2U);
  time_.advance(std::chrono::seconds(1));
  store_->plant_upload("step-1/b");
  ASSERT_TRUE(probe(*client_, false));
  const auto left = client_->open_uploads("");
  ASSERT_EQ(left->size(), 2U);
  EXPECT_EQ(left->front().key, "other/a");
  EXPECT_EQ(left->back().key, "step-1/b");
}

TEST_F(ObjectProbeTest, UploadsThatCantBeListedOrEndedAreReported) {
  refuse("GET", "uploads", FakeS3::error(403, "AccessDenied"));
  EXPECT_TRUE(probe(*client_, false));
  EXPECT_NE(logged_.find("can't be looked for"), std::string::npos);
  store_->plant_upload("step-1/a");
  time_.advance(2 * kStaleUpload);
  refuse("DELETE", "uploadId", FakeS3::error(403, "AccessDenied"));
  EXPECT_TRUE(probe(*client_, false));
  EXPECT_NE(logged_.find("an upload that was left open stays"), std::string::npos);
}

}  // namespace
}  // namespace deepfreeze
