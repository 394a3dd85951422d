#include "tiering/merged_run.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <limits>

#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

class MergedRunTest : public testing::Test {
 protected:
  MergedRunTest() {
    set_log_sink([](std::string_view) {});
  }  // records are rebuilt
  ~MergedRunTest() override { set_log_sink({}); }

  [[nodiscard]] RunListing merged() {
    const std::vector<RunListing> listings = {read_run(near_).value(), read_run(far_).value()};
    return merge(listings);
  }

  SimDisk near_;
  SimDisk far_;
  NearRun run_{near_};
  VfsTierStore store_{far_};
};

TEST_F(MergedRunTest, AnAttemptCountsWhereverItIsCommitted) {
  const Manifest first = run_.save(1);
  ASSERT_EQ(text_of(flush_to(near_, first, store_)), "");
  const Manifest second = run_.save(2);
  ASSERT_TRUE(remove_attempt(near_, name_of(first)));
  const RunListing all = merged();
  ASSERT_EQ(all.attempts.size(), 2U);
  EXPECT_EQ(all.attempts[0].manifest, first);
  EXPECT_EQ(all.attempts[1].manifest, second);
}

TEST_F(MergedRunTest, AGoodManifestCountsBeforeABadOne) {
  const Manifest saved = run_.save(1);
  ASSERT_EQ(text_of(flush_to(near_, saved, store_)), "");
  ASSERT_TRUE(near_.flip_bit(path_in_run(saved, kManifestFile), 99));
  ASSERT_TRUE(read_run(near_)->attempts.front().fault);
  const RunListing all = merged();
  EXPECT_FALSE(all.attempts.front().fault);
  EXPECT_EQ(all.attempts.front().manifest, saved);
}

TEST_F(MergedRunTest, ANewDirectoryTakesTheRunAndItsClaims) {
  const Manifest saved = run_.save(1);
  ASSERT_EQ(text_of(flush_to(near_, saved, store_)), "");
  SimDisk elsewhere;
  ASSERT_EQ(text_of(adopt_history(elsewhere, far_)), "");
  const RunListing here = read_run(elsewhere).value();
  EXPECT_EQ(here.run.run_id, run_.run_id());
  ASSERT_EQ(here.claims.size(), 1U);
  EXPECT_EQ(here.claims[0].record, read_run(near_)->claims[0].record);
}

TEST_F(MergedRunTest, ClaimsOfAnotherMachineAreTaken) {
  ASSERT_EQ(text_of(flush_to(near_, run_.save(1), store_)), "");
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), {}));
  ASSERT_EQ(text_of(adopt_history(near_, far_)), "");
  EXPECT_EQ(read_run(near_)->claims.size(), 2U);
  EXPECT_EQ(text_of(adopt_history(near_, far_)), "");  // again: nothing is left to take
}

TEST_F(MergedRunTest, ATierWithoutARunHasNothingToTake) {
  EXPECT_EQ(text_of(adopt_history(near_, far_)), "");
  EXPECT_EQ(read_run(near_)->claims.size(), 1U);
}

TEST_F(MergedRunTest, AnotherRunIsRefused) {
  NearRun other(far_);
  const Status adopted = adopt_history(near_, far_);
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().code(), ErrorCode::kMismatch) << adopted.error().message();
  EXPECT_TRUE(adopted.error().message().contains(other.run_id())) << adopted.error().message();
  EXPECT_TRUE(adopted.error().message().contains("tiers of its own")) << adopted.error().message();
}

// Some reads that fail are made good: a lost record is rebuilt from others.
TEST_F(MergedRunTest, ADirectoryThatCannotBeReadIsAnError) {
  ASSERT_EQ(text_of(flush_to(near_, run_.save(1), store_)), "");
  for (SimDisk* disk : {&near_, &far_}) {
    const std::size_t before = disk->read_count();
    ASSERT_EQ(text_of(adopt_history(near_, far_)), "");
    const std::size_t reads = disk->read_count() - before;
    std::size_t errors = 0;
    for (std::size_t index = 0; index < reads; ++index) {
      disk->fail_read_at(disk->read_count() + index, EIO);
      const Status adopted = adopt_history(near_, far_);
      disk->fail_read_at(std::numeric_limits<std::size_t>::max(), EIO);
      if (adopted) continue;
      ++errors;
      EXPECT_EQ(adopted.error().os_errno(), EIO) << adopted.error().message();
    }
    EXPECT_GT(errors, 0U);
  }
}

TEST_F(MergedRunTest, TwoClaimsOfOneNumberAreRefused) {
  ASSERT_EQ(text_of(flush_to(near_, run_.save(1), store_)), "");
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), {}));
  run_.claim({});
  const Status adopted = adopt_history(near_, far_);
  ASSERT_FALSE(adopted);
  EXPECT_EQ(adopted.error().code(), ErrorCode::kMismatch) << adopted.error().message();
}

// The next open() completes the work.
TEST_F(MergedRunTest, APowerCutWhileAdoptingLeavesARunThatCanBeAdopted) {
  ASSERT_EQ(text_of(flush_to(near_, run_.save(1), store_)), "");
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), {}));
  for (std::size_t at = 0;; ++at) {
    SimDisk elsewhere;
    elsewhere.crash_at(at);
    const bool is_over = adopt_history(elsewhere, far_).has_value();
    if (is_over) elsewhere.power_off();
    for (const auto& image : elsewhere.crash_images(50, at)) {
      ASSERT_EQ(broken_tier(*image, run_.run_id()), "") << image->label();
      ASSERT_TRUE(!is_over || read_run(*image)->claims.size() == 2) << image->label();
      ASSERT_EQ(text_of(adopt_history(*image, far_)), "") << image->label();
      EXPECT_EQ(read_run(*image)->claims.size(), 2U) << image->label();
    }
    if (is_over) break;
    ASSERT_LT(at, 100U);
  }
}

}  // namespace
}  // namespace deepfreeze
