// Files that checkpoints share, in an object store. The faults of S3Fault that are not tried here
// are tried by object_flush_test.cc.
#include "tiering/shared_files.h"

#include <array>
#include <thread>

#include "base/fail_point.h"
#include "format/file_reference.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"
#include "support/sanitized.h"
#include "tiering/flusher.h"
#include "tiering/shared_files_fixture.h"

namespace deepfreeze::shared_files_test {
namespace {

constexpr std::size_t kRequestsMax = 300;

TEST_F(ReferredInAStore, AreSentOnceMoreAndThenReferredTo) {
  Far far;
  std::vector<Manifest> saved;
  for (int i = 0; i < 5; ++i) {
    saved.push_back(run_.save());
    ASSERT_EQ(text_of(flush(saved.back(), *far.tier)), "");
    EXPECT_EQ(sent_cold(), i < 2) << i;
    EXPECT_TRUE(is_committed(far, saved.back()));
  }
  EXPECT_EQ(broken(far), "");
  EXPECT_EQ(far.shared_keys(), 1U);
  EXPECT_EQ(far.store->contents(cold_of(saved[4])).value().size(), kReferenceBytes);
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with("shared/")) continue;
    ASSERT_TRUE(far.store->flip_bit(key, 8 * kColdBytes));
    EXPECT_TRUE(verify_attempt(far.tier->view(), saved[0])) << "it has its own";
    EXPECT_FALSE(verify_attempt(far.tier->view(), saved[4]));
  }
}

TEST_F(ReferredInAStore, GoWithTheLastThatRefersToThem) {
  Far far;
  std::vector<Manifest> saved;
  for (int i = 0; i < 4; ++i) {
    saved.push_back(run_.save());
    ASSERT_EQ(text_of(flush(saved.back(), *far.tier)), "");
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(far.shared_keys(), 1U) << i;
    ASSERT_EQ(text_of(remove(*far.tier, saved[i])), "");
    ASSERT_EQ(text_of(sweep(*far.tier)), "");
    EXPECT_EQ(broken(far), "") << i;
  }
  EXPECT_EQ(far.shared_keys(), 0U);
}

TEST_F(ReferredInAStore, StayForAnAttemptThatHasNoManifestYet) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  for (const char* point : {"flush.referred", "flush.checked"}) {
    Far far;
    ASSERT_EQ(text_of(flush(first, *far.tier)), "");
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error"));
    EXPECT_FALSE(flush(second, *far.tier)) << point;
    fail_points::disarm();
    ASSERT_EQ(text_of(sweep(*far.tier)), "");
    EXPECT_EQ(far.shared_keys(), 1U) << point;
    ASSERT_EQ(text_of(flush(second, *far.tier)), "");
    EXPECT_FALSE(sent_cold()) << point;
    EXPECT_EQ(broken(far), "") << point;
  }
}

TEST_F(ReferredInAStore, AreSweptByTheFlusher) {
  Far far;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(text_of(flush(run_.save(), *far.other())), "");
  ASSERT_EQ(far.shared_keys(), 1U);
  const Manifest last = run_.save_alone();
  Flusher::Settings settings;
  settings.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<PassingVfs>(near_);
  };
  settings.near_keep = {.last = 1};
  settings.tiers.push_back({.place = "s3", .store = far.other(), .keep = {.last = 1}});
  settings.generation = [&] { return last.point.generation; };
  const auto flusher = Flusher::start(std::move(settings));
  ASSERT_EQ(text_of(flusher->drain(std::chrono::seconds(60))), "");
  for (int i = 0; i < 2000 && far.shared_keys() > 0; ++i) {
    flusher->wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  flusher->stop();
  EXPECT_EQ(far.shared_keys(), 0U);
  EXPECT_TRUE(is_committed(far, last));
  EXPECT_EQ(broken(far), "");
}

// It was sent, and its process died.
TEST_F(ReferredInAStore, GoIfNobodyCameToReferToThem) {
  Far far;
  const Manifest first = run_.save();
  ASSERT_EQ(text_of(flush(first, *far.tier)), "");
  const Manifest second = run_.save();
  ASSERT_TRUE(fail_points::arm("flush.shared=error"));
  EXPECT_FALSE(flush(second, *far.tier));
  fail_points::disarm();
  EXPECT_EQ(far.shared_keys(), 1U);
  ASSERT_EQ(text_of(sweep(*far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 0U);
  ASSERT_EQ(text_of(flush(second, *far.tier)), "");
  EXPECT_EQ(broken(far), "");
}

// A file that was retired by then stays as long as it may be referred to, and is not used anew.
TEST_F(ReferredInAStore, ASweepThatEndsAnywhereIsFinishedByTheNext) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  for (const char* point : {"sweep.retired", "sweep.removed"}) {
    Far far;
    ASSERT_EQ(text_of(flush(first, *far.tier)), "");
    ASSERT_EQ(text_of(flush(second, *far.tier)), "");
    ASSERT_EQ(text_of(remove(*far.tier, second)), "");
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error"));
    EXPECT_FALSE(sweep(*far.tier)) << point;
    fail_points::disarm();
    EXPECT_EQ(broken(far), "");
    ASSERT_EQ(text_of(flush(second, *far.tier)), "");
    EXPECT_TRUE(sent_cold()) << point;
    EXPECT_EQ(far.store->contents(cold_of(second)).value().size(), kReferenceBytes)
        << "to a new file";
    EXPECT_EQ(broken(far), "") << point;
    ASSERT_EQ(text_of(remove(*far.tier, second)), "");
    ASSERT_EQ(text_of(sweep(*far.tier)), "");
    EXPECT_EQ(far.shared_keys(), 0U) << point;
    EXPECT_EQ(broken(far), "") << point;
  }
}

// Nothing is read beyond the directory as long as the listing refers to all.
TEST_F(ReferredInAStore, ASweepCostsOneRequestIfAllIsReferredTo) {
  Far far;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  const RunListing listing = read_run(far.tier->view()).value();
  const std::size_t before = far.store->request_count();
  ASSERT_EQ(text_of(sweep_shared_files(*far.tier, listing)), "");
  EXPECT_EQ(far.store->request_count(), before + 1);
}

// Under a sanitizer, each request has one of the faults, in turn.
TEST_F(ReferredInAStore, AFaultAtAnyRequestLosesNothing) {
  constexpr std::array kFaults = {S3Fault::kInternalError, S3Fault::kLostAfter, S3Fault::kTimeout,
                                  S3Fault::kFlippedAnswer};
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  const Manifest third = run_.save();
  for (std::size_t kind = 0; kind < kFaults.size(); ++kind) {
    const S3Fault fault = kFaults[kind];
    for (std::size_t n = kSanitized ? kind : 0;; n += kSanitized ? kFaults.size() : 1) {
      Far far;
      ASSERT_EQ(text_of(flush(first, *far.other())), "");
      ASSERT_EQ(text_of(flush(second, *far.other())), "");
      far.store->fail_at(n, fault);
      const std::string label =
          std::to_string(static_cast<int>(fault)) + " at request " + std::to_string(n);
      const Status flushed = flush(third, *far.tier);
      ASSERT_TRUE(flushed || fault == S3Fault::kFlippedAnswer) << label << text_of(flushed);
      ASSERT_TRUE(is_committed(far, third) || !flushed) << label;
      std::ignore = remove(*far.tier, second);
      ASSERT_TRUE(sweep(*far.tier) || fault == S3Fault::kFlippedAnswer) << label;
      ASSERT_EQ(broken(far), "") << label;
      std::ignore = remove(*far.tier, third);
      std::ignore = sweep(*far.tier);
      ASSERT_EQ(broken(far), "") << label;
      if (far.store->request_count() <= n) break;
      ASSERT_LT(n, kRequestsMax);
    }
  }
}

TEST_F(ReferredInAStore, AFileThatHasRottenIsSentAnew) {
  Far far;
  ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with("shared/")) continue;
    ASSERT_TRUE(far.store->flip_bit(key, 100));  // of the header
  }
  const Manifest third = run_.save();
  ASSERT_EQ(text_of(flush(third, *far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 2U);
  EXPECT_EQ(text_of(verify_attempt(far.tier->view(), third)), "");
}

// As a restore asks for it: the bad copy is retired, and the next flush sends another.
TEST_F(ReferredInAStore, AFileThatARestoreFoundBadIsNotUsedAgain) {
  Far far;
  std::vector<Manifest> saved;
  for (int i = 0; i < 3; ++i) saved.push_back(run_.save());
  ASSERT_EQ(text_of(flush(saved[0], *far.tier)), "");
  ASSERT_EQ(text_of(flush(saved[1], *far.tier)), "");
  ASSERT_EQ(text_of(retire_referred(*far.tier, cold_of(saved[0]))), "") << "it is no reference";
  EXPECT_EQ(text_of(retire_referred(*far.tier, cold_of(saved[2]))), "") << "it is missing";
  const std::string rotten = "step-000000000009-00000000000000bb/" + saved[0].files[1].name;
  far.store->plant(rotten, std::string("DFrefers") + std::string(kReferenceBytes - 8, 'x'));
  EXPECT_EQ(text_of(retire_referred(*far.tier, rotten)), "") << "so that it can be replaced";
  ASSERT_TRUE(far.tier->view().remove_file(rotten));
  EXPECT_EQ(far.shared_keys(), 1U);
  ASSERT_EQ(text_of(retire_referred(*far.tier, cold_of(saved[1]))), "");
  ASSERT_EQ(text_of(flush(saved[2], *far.tier)), "");
  EXPECT_TRUE(sent_cold());
  EXPECT_EQ(far.shared_keys(), 3U) << "two files and a mark";
  EXPECT_EQ(broken(far), "");
}

TEST_F(ReferredInAStore, ThatCanNotRefuseASecondFileOfANameAreSent) {
  Far far;
  const auto tier = make_object_tier(
      std::make_shared<S3Client>(FakeS3::settings(far.store, far.time)), kPartBytes, false);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(text_of(flush(run_.save(), *tier)), "");
    EXPECT_TRUE(sent_cold()) << i;
  }
  EXPECT_EQ(far.shared_keys(), 0U);
}

// One file that the store does not let go holds up no other, nor does a page that names nothing.
TEST_F(ReferredInAStore, ASweepGoesOnBehindWhatItCanNotDelete) {
  Far far;
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  ASSERT_EQ(text_of(flush(first, *far.tier)), "");
  ASSERT_EQ(text_of(flush(second, *far.tier)), "");
  ASSERT_EQ(text_of(remove(*far.tier, second)), "");
  const std::string other =
      "shared/" +
      shared_file_name(
          shared_stem({.run_id = run_.run_id(), .point = {1, 1, 1, 0xaa}}, first.files[0].name), 1);
  far.store->plant(other, "held");
  far.store->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.method != "DELETE" || request.url.find(other) == std::string::npos) return {};
    return FakeS3::error(403, "AccessDenied");
  });
  EXPECT_EQ(code_of(sweep(*far.tier)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(far.shared_keys(), 2U) << "the held one, and its mark";
  far.store->set_hook({});
  const std::string begun = "step-000000000009-00000000000000bb/" + first.files[0].name;
  far.store->plant(begun, std::string("DFrefers") + std::string(kReferenceBytes - 8, 'x'));
  ASSERT_EQ(text_of(sweep(*far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 2U) << "that page may name it";
  ASSERT_TRUE(far.tier->view().remove_file(begun));
  ASSERT_EQ(text_of(sweep(*far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 0U);
}

TEST_F(ReferredInAStore, AMissingFileIsNamed) {
  Far far;
  ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  const Manifest second = run_.save();
  ASSERT_EQ(text_of(flush(second, *far.tier)), "");
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with("shared/")) continue;
    ASSERT_TRUE(far.tier->view().remove_file(key));
  }
  const Status verified = verify_attempt(far.tier->view(), second);
  ASSERT_EQ(code_of(verified), ErrorCode::kCorrupt);
  EXPECT_TRUE(verified.error().message().contains("refers to shared/")) << text_of(verified);
}

}  // namespace
}  // namespace deepfreeze::shared_files_test
