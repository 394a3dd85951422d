// Flushes into a store of objects that fails at every request in turn, in every way. In
// each case the store has the whole attempt or no manifest, and no upload stays open.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "base/log.h"
#include "manifest/remove_attempt.h"
#include "object/object_tier.h"
#include "support/code_of.h"
#include "support/fake_s3.h"
#include "support/passing_vfs.h"
#include "support/sanitized.h"
#include "tiering/flusher.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kOnePage = 4096;  // of a part, so that the files have two
constexpr std::size_t kRequestsMax = 500;

class ObjectFlush : public testing::Test {
 protected:
  // A store, and a process that uses it.
  struct Far {
    FakeTime time;
    std::shared_ptr<FakeS3> store = std::make_shared<FakeS3>(time);
    std::unique_ptr<TierStore> tier = open();

    std::unique_ptr<TierStore> open() {
      return make_object_tier(std::make_shared<S3Client>(FakeS3::settings(store, time)), kOnePage);
    }
    // For a look that no fault meets.
    std::unique_ptr<Vfs> look() {
      const auto unharmed = std::make_shared<UnharmedS3>(store);
      return make_object_view(std::make_shared<S3Client>(FakeS3::settings(unharmed, time)));
    }
  };

  ObjectFlush() {
    set_log_sink([](std::string_view) {});
  }
  ~ObjectFlush() override { set_log_sink({}); }

  // "" if another process finds the run whole; else its finding.
  std::string broken(Far& far) { return broken_tier(*far.look(), run_.run_id()); }
  static bool is_committed(Far& far, const Manifest& saved) {
    return has_committed(*far.look(), saved);
  }
  static bool has_files_of(const Far& far, const Manifest& saved) {
    const std::string directory = attempt_dir_name(name_of(saved)) + "/";
    return std::ranges::any_of(far.store->keys(),
                               [&](const std::string& key) { return key.starts_with(directory); });
  }
  // Only bytes that were changed on the way may end in an error; all else is overcome.
  static bool may_fail(S3Fault fault, const Status& status) {
    return status || fault == S3Fault::kFlippedAnswer;
  }
  void flush_twice_and_delete(Far& far, S3Fault fault, const std::string& label);

  SimDisk near_;
  NearRun run_{near_};
  const Manifest older_ = run_.save(1);
  const Manifest saved_ = run_.save(2, 2);
};

// A flush, a second flusher of the same attempt, and a deletion, which is finished if need be.
void ObjectFlush::flush_twice_and_delete(Far& far, S3Fault fault, const std::string& label) {
  const Status first = flush_to(near_, saved_, *far.tier);
  ASSERT_TRUE(may_fail(fault, first)) << label << ": " << text_of(first);
  ASSERT_EQ(broken(far), "") << label;
  ASSERT_TRUE(is_committed(far, saved_) || !first) << label;
  ASSERT_EQ(far.store->open_uploads(), 0U) << label;
  const auto other = far.open();
  const Status second = flush_to(near_, saved_, *other);
  ASSERT_TRUE(may_fail(fault, second)) << label << ": " << text_of(second);
  ASSERT_EQ(broken(far), "") << label;
  ASSERT_TRUE(is_committed(far, saved_) || !second) << label;
  ASSERT_EQ(far.store->open_uploads(), 0U) << label;
  const Status removed = remove_attempt(far.tier->view(), name_of(saved_));
  ASSERT_TRUE(may_fail(fault, removed)) << label << ": " << text_of(removed);
  ASSERT_EQ(broken(far), "") << label;
  if (!removed) {
    ASSERT_EQ(text_of(remove_attempt(far.tier->view(), name_of(saved_))), "") << label;
  }
  ASSERT_FALSE(has_files_of(far, saved_)) << label;
}

// Under a sanitizer, each request has one of the faults, in turn.
TEST_F(ObjectFlush, AFaultAtAnyRequestLeavesAWholeAttemptOrNone) {
  constexpr std::size_t kStride = kSanitized ? kS3Faults : 1;
  std::size_t flushes = 0;
  for (int kind = 0; kind < kS3Faults; ++kind) {
    for (std::size_t n = kSanitized ? static_cast<std::size_t>(kind) : 0;; n += kStride) {
      Far far;
      const auto fault = static_cast<S3Fault>(kind);
      const std::string label = fmt::format("fault {} at request {}", kind, n);
      far.store->fail_at(n, fault);
      flush_twice_and_delete(far, fault, label);
      if (HasFatalFailure()) return;
      ++flushes;
      ASSERT_LT(far.time.slept(), std::chrono::seconds(60)) << label;
      if (far.store->request_count() <= n) break;
      ASSERT_LT(n, kRequestsMax) << label;
    }
  }
  RecordProperty("flushes", static_cast<int>(flushes));
  EXPECT_GT(flushes, kS3Faults * 50U / kStride);
}

TEST_F(ObjectFlush, AStoreWithoutConditionsOrChecksumsIsUsedAllTheSame) {
  for (const bool has_conditions : {true, false}) {
    for (const S3Fault fault : {S3Fault::kInternalError, S3Fault::kLostAfter, S3Fault::kTimeout}) {
      for (std::size_t n = 0;; ++n) {
        Far far;
        far.store->forget_checksums();
        if (!has_conditions) far.store->ignore_conditions();
        far.store->fail_at(n, fault);
        ASSERT_EQ(text_of(flush_to(near_, saved_, *far.tier)), "") << n;
        ASSERT_EQ(broken(far), "") << n;
        ASSERT_TRUE(is_committed(far, saved_)) << n;
        ASSERT_EQ(far.store->open_uploads(), 0U) << n;
        if (far.store->request_count() <= n) break;
        ASSERT_LT(n, kRequestsMax);
      }
    }
  }
}

// Each request fails with a chance of one in six, so that faults meet faults. Uploads may stay open
// then; the next program that opens the tier ends them a day later.
TEST_F(ObjectFlush, AStormOfFaultsLeavesAWholeAttemptOrNone) {
  constexpr std::uint32_t kSeed = 20261127;
  constexpr int kRounds = kSanitized ? 30 : 100;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int failed = 0;
  for (int round = 0; round < kRounds; ++round) {
    Far far;
    for (std::size_t n = 0; n < kRequestsMax; ++n) {
      if (random() % 6 == 0) far.store->fail_at(n, static_cast<S3Fault>(random() % kS3Faults));
    }
    for (int flush = 0; flush < 3; ++flush) {
      const Status flushed = flush_to(near_, saved_, *far.open());
      failed += flushed ? 0 : 1;
      ASSERT_EQ(broken(far), "") << round;
      ASSERT_TRUE(is_committed(far, saved_) || !flushed) << round << ": " << text_of(flushed);
    }
    std::ignore = remove_attempt(far.tier->view(), name_of(saved_));
    ASSERT_EQ(broken(far), "") << round;
    far.time.advance(kStaleUpload + std::chrono::hours(2));
    S3Client opener(FakeS3::settings(std::make_shared<UnharmedS3>(far.store), far.time));
    ASSERT_TRUE(probe(opener, false)) << round;
    ASSERT_EQ(far.store->open_uploads(), 0U) << round;
  }
  EXPECT_GT(failed, 0);
}

// From request n on nothing is answered: the process is killed, or the network is gone.
TEST_F(ObjectFlush, ADeadStoreLeavesAWholeAttemptOrNoneAndTheNextFlushEndsIt) {
  for (std::size_t n = 0;; ++n) {
    Far far;
    std::atomic<std::size_t> asked{0};  // by several uploading threads
    far.store->set_hook([&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
      if (asked.fetch_add(1) < n) return std::nullopt;
      return std::unexpected(Error(ErrorCode::kIo, "no connection"));
    });
    const Status first = flush_to(near_, saved_, *far.tier);
    far.store->set_hook({});
    ASSERT_EQ(broken(far), "") << n;
    if (first) {
      EXPECT_TRUE(is_committed(far, saved_));
      break;
    }
    ASSERT_EQ(text_of(flush_to(near_, saved_, *far.open())), "") << n;
    ASSERT_TRUE(is_committed(far, saved_)) << n;
    ASSERT_LT(n, kRequestsMax);
  }
}

TEST_F(ObjectFlush, TwoFlushersAtOnceLeaveOneWholeAttempt) {
  for (int round = 0; round < 30; ++round) {
    Far far;
    std::array<Status, 2> flushed;
    {
      const auto flush = [&](std::size_t which) {
        flushed[which] = flush_to(near_, saved_, *far.open());
      };
      const std::jthread one(flush, 0);
      const std::jthread two(flush, 1);
    }
    for (const Status& each : flushed) ASSERT_EQ(text_of(each), "") << round;
    ASSERT_EQ(broken(far), "") << round;
    ASSERT_TRUE(is_committed(far, saved_)) << round;
    ASSERT_EQ(far.store->open_uploads(), 0U) << round;
  }
}

TEST_F(ObjectFlush, AFlusherOfAnOlderGenerationIsFenced) {
  Far far;
  ASSERT_EQ(text_of(flush_to(near_, older_, *far.tier)), "");
  const auto elsewhere = near_.clone();
  ASSERT_TRUE(claim_generation(*elsewhere, run_.run_id(), older_.point));
  const RunListing newer = read_run(*elsewhere).value();
  ASSERT_TRUE(copy_history(newer, *elsewhere, *far.open()));
  const Status zombie = flush_to(near_, saved_, *far.tier);
  EXPECT_EQ(code_of(zombie), ErrorCode::kFenced) << text_of(zombie);
  EXPECT_FALSE(is_committed(far, saved_));
  EXPECT_EQ(broken(far), "");
}

// The store never answers, until the request is given up.
TEST_F(ObjectFlush, AFlusherThatStopsWaitsForNoStore) {
  Far far;
  std::atomic<bool> is_asked{false};
  std::atomic<bool> is_over{false};
  const auto silent = [&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    is_asked = true;
    while (!is_over && !(request.stop != nullptr && *request.stop)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::unexpected(Error(ErrorCode::kCancelled, "given up"));
  };
  std::string log;
  set_log_sink([&](std::string_view line) { log += line; });
  Flusher::Settings settings;
  settings.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<PassingVfs>(near_);
  };
  settings.tiers.push_back({.place = "s3", .store = far.open()});
  settings.generation = [] { return std::uint64_t{1}; };
  far.store->set_hook(silent);
  const auto flusher = Flusher::start(std::move(settings));
  while (!is_asked) std::this_thread::yield();
  flusher->stop(std::chrono::seconds(20));
  EXPECT_FALSE(log.contains("left behind")) << log;
  is_over = true;
  set_log_sink([](std::string_view) {});
}

// Every file and record of the store, a bit at a time in steps that are prime to all sizes.
TEST_F(ObjectFlush, ABitThatTheStoreFlipsIsFound) {
  Far far;
  ASSERT_EQ(text_of(flush_to(near_, saved_, *far.tier)), "");
  std::size_t flips = 0;
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with(attempt_dir_name(name_of(saved_)))) continue;
    for (std::uint64_t bit = 0; far.store->flip_bit(key, bit); bit += 997, ++flips) {
      EXPECT_NE(broken(far), "") << key << " bit " << bit;
      ASSERT_TRUE(far.store->flip_bit(key, bit));
    }
  }
  EXPECT_GT(flips, 50U);
  EXPECT_EQ(broken(far), "");
}

}  // namespace
}  // namespace deepfreeze
