#include "manifest/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "crash/attempt_maker.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

class Claims : public testing::Test {
 protected:
  Claims() : run_id_(create_or_open_run(disk_, {})->run_id) {}

  std::uint64_t claim(std::optional<Point> from = {}) {
    const auto record = claim_generation(disk_, run_id_, from);
    EXPECT_TRUE(record.has_value()) << record.error().message();
    return record ? record->generation : 0;
  }
  Identity identity(std::uint64_t generation, std::uint64_t step) const {
    return make_identity(run_id_, {generation, step, step, step});
  }

  SimDisk disk_;
  std::string run_id_;
};

TEST_F(Claims, CountUpAndRecordFromWhereTheRunGoesOn) {
  EXPECT_EQ(claim(), 1U);
  ASSERT_TRUE(save_attempt(disk_, identity(1, 5)).has_value());
  const Point from{1, 5, 5, 5};
  EXPECT_EQ(claim(from), 2U);
  const auto listing = read_run(disk_);
  ASSERT_EQ(listing->claims.size(), 2U);
  EXPECT_EQ(listing->claims[0].record->resumed_from, std::nullopt);
  EXPECT_EQ(listing->claims[1].record->resumed_from, from);
}

TEST_F(Claims, GoAboveWhatWasCommittedWhereClaimsAreLost) {
  ASSERT_TRUE(save_attempt(disk_, identity(7, 5)).has_value());
  EXPECT_EQ(claim(), 8U);
}

TEST_F(Claims, RacingClaimantsAllGetANumberOfTheirOwn) {
  std::array<std::uint64_t, 8> generations{};
  {
    std::vector<std::jthread> claimants;
    for (std::uint64_t& generation : generations) {
      claimants.emplace_back([this, &generation] { generation = claim(); });
    }
  }
  std::ranges::sort(generations);
  EXPECT_EQ(generations, (std::array<std::uint64_t, 8>{1, 2, 3, 4, 5, 6, 7, 8}));
  for (const std::string& name : disk_.list_all()) EXPECT_FALSE(name.ends_with(".tmp")) << name;
}

TEST_F(Claims, TheLastNumberEndsInAnErrorNotInAWrap) {
  disk_.plant(generation_file_name(~0ULL), "");
  ASSERT_FALSE(claim_generation(disk_, run_id_, {}).has_value());
}

TEST_F(Claims, AHigherClaimFencesTheLower) {
  EXPECT_EQ(claim(), 1U);
  EXPECT_TRUE(check_not_fenced(disk_, 1).has_value());
  EXPECT_EQ(claim(), 2U);
  const Status fenced = check_not_fenced(disk_, 1);
  ASSERT_FALSE(fenced.has_value());
  EXPECT_EQ(fenced.error().code(), ErrorCode::kFenced);
  EXPECT_NE(fenced.error().message().find("generation 2"), std::string::npos);
  EXPECT_TRUE(check_not_fenced(disk_, 2).has_value());
}

TEST_F(Claims, AbortsWhatOlderGenerationsLeftUndecided) {
  claim();
  ASSERT_TRUE(save_attempt(disk_, identity(1, 1)).has_value());
  ASSERT_TRUE(begin_attempt(disk_, {2, 2}).has_value());  // no header yet
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(1, 3)).has_value());
  ASSERT_TRUE(begin_attempt(disk_, {4, 4}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(2, 4)).has_value());  // our own
  EXPECT_EQ(claim(), 2U);
  const auto count = abort_undecided(disk_, *read_run(disk_), 2);
  ASSERT_TRUE(count.has_value()) << count.error().message();
  EXPECT_EQ(*count, 2U);
  const auto listing = read_run(disk_);
  ASSERT_EQ(listing->attempts.size(), 4U);
  EXPECT_TRUE(listing->attempts[0].committed());
  EXPECT_EQ(listing->attempts[1].manifest->outcome, Outcome::kAborted);
  EXPECT_EQ(listing->attempts[2].manifest->outcome, Outcome::kAborted);
  EXPECT_EQ(listing->attempts[2].manifest->point, (Point{1, 3, 3, 3}));
  EXPECT_TRUE(listing->attempts[3].undecided());
}

TEST_F(Claims, AFencedProcessAbortsNothing) {
  claim();
  ASSERT_TRUE(begin_attempt(disk_, {2, 2}).has_value());
  const auto listing = read_run(disk_);
  claim();
  const auto count = abort_undecided(disk_, *listing, 1);
  ASSERT_FALSE(count.has_value());
  EXPECT_EQ(count.error().code(), ErrorCode::kFenced);
  EXPECT_TRUE(read_run(disk_)->attempts[0].undecided());
}

TEST_F(Claims, WhereItCantBeReadWhoIsFencedNothingIsAborted) {
  claim();
  ASSERT_TRUE(begin_attempt(disk_, {2, 2}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(1, 2)).has_value());
  claim();
  const auto counted = disk_.clone();
  ASSERT_TRUE(abort_fenced(*counted, run_id_, {2, 2}).has_value());
  std::size_t refused = 0;
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = disk_.clone();
    disk->fail_read_at(index, EIO);
    if (abort_fenced(*disk, run_id_, {2, 2})) continue;
    ++refused;
    EXPECT_TRUE(read_run(*disk)->attempts[0].undecided()) << index;
    EXPECT_TRUE(abort_fenced(*disk, run_id_, {2, 2}).has_value()) << index;
  }
  EXPECT_GT(refused, 0U);
}

TEST_F(Claims, AnAttemptThatWasDecidedMeanwhileKeepsItsOutcome) {
  claim();
  ASSERT_TRUE(begin_attempt(disk_, {2, 2}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(1, 2)).has_value());
  const auto before = read_run(disk_);
  ASSERT_TRUE(commit_attempt(disk_, make_request(identity(1, 2))).has_value());
  claim();
  EXPECT_EQ(abort_undecided(disk_, *before, 2), 0U);
  EXPECT_TRUE(read_run(disk_)->attempts[0].committed());
}

}  // namespace
}  // namespace deepfreeze
