#include "manifest/several_ranks.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "base/fail_point.h"
#include "base/try.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/sealed_parts.h"
#include "manifest/two_nodes.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::several_ranks_test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};
constexpr AttemptName kAttempt{3, 3};
const std::string kDirectory = attempt_dir_name(kAttempt);

class SeveralRanks : public testing::Test {
 protected:
  SeveralRanks() : run_id_(create_or_open_run(disk_, {})->run_id) {
    EXPECT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
  }
  ~SeveralRanks() override { fail_points::disarm(); }

  Identity identity(std::uint32_t rank) const {
    return make_identity(run_id_, {1, 3, 3, 3}, {rank, 2, 0, 1});
  }
  Status seal(std::uint32_t rank) {
    DF_TRY_VOID(join_attempt(disk_, kAttempt));
    return write_and_seal(disk_, identity(rank));
  }
  Result<Manifest> commit() {
    CommitRequest request = make_request(identity(0));
    request.deadline = kLong;
    return commit_attempt(disk_, request);
  }
  Result<Manifest> await(milliseconds deadline = kLong) {
    return await_outcome(disk_, identity(1), deadline);
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const auto entries = disk_.list(kDirectory).value();
    for (const DirEntry& entry : entries) names.push_back(entry.name);
    return names;
  }

  SimDisk disk_;
  std::string run_id_;
};

TEST_F(SeveralRanks, EachMayBeTheFirstToJoin) {
  EXPECT_TRUE(join_attempt(disk_, kAttempt));
  EXPECT_TRUE(join_attempt(disk_, kAttempt));
  EXPECT_EQ(disk_.pending_count(), 0U);
}

TEST_F(SeveralRanks, WhoCantMakeTheDirectoryDurableHasNotJoined) {
  disk_.fail_at(disk_.operation_count() + 1, EIO);
  EXPECT_EQ(code_of(join_attempt(disk_, kAttempt)), ErrorCode::kIo);
  EXPECT_TRUE(join_attempt(disk_, kAttempt));
  EXPECT_EQ(disk_.pending_count(), 0U);
}

TEST_F(SeveralRanks, WhatCantBeReadIsNoOutcome) {
  ASSERT_TRUE(seal(0) && seal(1));
  ASSERT_TRUE(commit());
  const auto counted = disk_.clone();
  ASSERT_TRUE(await_outcome(*counted, identity(1), kLong));
  ASSERT_GT(counted->read_count(), 1U);
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = disk_.clone();
    disk->fail_read_at(index, EIO);
    EXPECT_EQ(code_of(await_outcome(*disk, identity(1), kLong)), ErrorCode::kIo) << index;
  }
}

TEST_F(SeveralRanks, TheOtherSeesWhatRank0Published) {
  ASSERT_TRUE(seal(0) && seal(1));
  const auto published = commit();
  ASSERT_TRUE(published) << published.error().message();
  EXPECT_EQ(await().value(), *published);
}

TEST_F(SeveralRanks, TheOtherWaitsForIt) {
  ASSERT_TRUE(seal(0) && seal(1));
  Result<Manifest> published;
  std::jthread rank0([&] {
    std::this_thread::sleep_for(milliseconds(20));
    published = commit();
  });
  const auto seen = await();
  rank0.join();
  EXPECT_EQ(seen.value(), published.value());
}

// Rank 0 has lost its power, or only its sync, after the rename.
TEST_F(SeveralRanks, WhatTheOtherAcknowledgesLasts) {
  ASSERT_TRUE(seal(0) && seal(1));
  ASSERT_TRUE(fail_points::arm("commit.manifest_renamed=error:EIO"));
  ASSERT_FALSE(commit());
  fail_points::disarm();
  ASSERT_GT(disk_.pending_count(), 0U);
  ASSERT_TRUE(await());
  EXPECT_EQ(disk_.pending_count(), 0U);
}

TEST_F(SeveralRanks, ASyncThatFailsIsNoAcknowledgement) {
  ASSERT_TRUE(seal(0) && seal(1));
  ASSERT_TRUE(fail_points::arm("commit.manifest_renamed=error:EIO"));
  ASSERT_FALSE(commit());
  fail_points::disarm();
  disk_.fail_at(disk_.operation_count(), EIO);
  const auto seen = await();
  ASSERT_EQ(code_of(seen), ErrorCode::kIo);
  EXPECT_TRUE(seen.error().message().contains("outcome unknown")) << seen.error().message();
}

TEST_F(SeveralRanks, WhoIsStoppedBeforeItLastsHasNotAcknowledged) {
  ASSERT_TRUE(seal(0) && seal(1));
  ASSERT_TRUE(commit());
  for (const char* point : {"await.published=error:EIO", "await.synced=error:EIO"}) {
    ASSERT_TRUE(fail_points::arm(point));
    EXPECT_EQ(code_of(await()), ErrorCode::kIo);
    fail_points::disarm();
  }
}

TEST_F(SeveralRanks, NobodyWaitsForEver) {
  ASSERT_TRUE(seal(1));
  const auto seen = await(milliseconds(5));
  ASSERT_EQ(code_of(seen), ErrorCode::kTimeout);
  EXPECT_TRUE(seen.error().message().contains("outcome unknown")) << seen.error().message();
}

TEST_F(SeveralRanks, AnAttemptThatIsGoneWasGivenUp) {
  ASSERT_TRUE(seal(1));
  ASSERT_TRUE(remove_attempt(disk_, kAttempt));
  EXPECT_EQ(code_of(await()), ErrorCode::kCancelled);
}

TEST_F(SeveralRanks, WhoWithdrawsTakesItsFilesAndSaysWhy) {
  ASSERT_TRUE(seal(0) && seal(1));
  EXPECT_FALSE(reported_failure(disk_, kAttempt));
  EXPECT_TRUE(
      withdraw(disk_, identity(1), Error(ErrorCode::kNoSpace, "the disk of rank 1 is full")));
  EXPECT_EQ(names(),
            (std::vector<std::string>{"manifest.json", "rank-00000-of-00002-0-of-1.safetensors",
                                      "rank-00001-of-00002-0-of-1.failed"}));
  EXPECT_EQ(code_of(commit()), ErrorCode::kCancelled);
  const auto reported = reported_failure(disk_, kAttempt);
  ASSERT_TRUE(reported);
  EXPECT_TRUE(reported->message().contains("the disk of rank 1 is full"));
}

// Its own last sync has failed, and rank 0 has not waited for that.
TEST_F(SeveralRanks, FilesOfACommittedAttemptStay) {
  ASSERT_TRUE(seal(0) && seal(1));
  const auto published = commit();
  ASSERT_TRUE(published);
  EXPECT_FALSE(
      withdraw(disk_, identity(1), Error(ErrorCode::kIo, "the sync of the directory failed")))
      << "it is published";
  EXPECT_TRUE(verify_attempt(disk_, *published)) << "whole";
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(SeveralRanks, SealedFilesGoOnlyFromAnAttemptThatIsAborted) {
  ASSERT_TRUE(seal(0) && seal(1));
  EXPECT_TRUE(
      withdraw(disk_, identity(1), Error(ErrorCode::kIo, "the sync of the directory failed")));
  EXPECT_EQ(code_of(commit()), ErrorCode::kCancelled);
}

// Rank 0's directory may have committed it: nobody here can know.
TEST_F(SeveralRanks, WhatAnotherDirectoryDecidesIsNotAbortedHere) {
  TwoNodes nodes;
  nodes.claim();
  nodes.seal(3, 1);
  const Identity own = nodes.identity(3, 1);
  const Error error(ErrorCode::kIo, "the sync of the directory failed");
  EXPECT_FALSE(withdraw(nodes.other, own, error)) << "outcome unknown";
  EXPECT_TRUE(read_run(nodes.other)->attempts.at(0).doubt);
  EXPECT_EQ(reported_failure(nodes.other, kAttempt)->code(), ErrorCode::kIncomplete);
  EXPECT_TRUE(verify_part(nodes.other, kDirectory + "/" + sealed_file_name(own.part)));
}

TEST_F(SeveralRanks, WhatAnotherDirectoryHasDecidedIsKnownHere) {
  for (const Outcome outcome : {Outcome::kCommitted, Outcome::kAborted}) {
    TwoNodes nodes;
    nodes.claim();
    nodes.seal(3, 1);
    const Identity own = nodes.identity(3, 1);
    const bool is_aborted = outcome == Outcome::kAborted;
    nodes.other.plant(TwoNodes::manifest_of(3),
                      is_aborted ? encode_manifest(aborted_outcome(own)) : nodes.committed_text(3));
    EXPECT_EQ(withdraw(nodes.other, own, Error(ErrorCode::kIo, "late")), is_aborted);
    EXPECT_EQ(reported_failure(nodes.other, kAttempt).has_value(), is_aborted);
    const auto file = nodes.other.contents(kDirectory + "/" + sealed_file_name(own.part));
    EXPECT_EQ(file.has_value(), !is_aborted);
  }
}

TEST_F(SeveralRanks, TheDirectoryThatDecidesAbortsAsEver) {
  TwoNodes nodes;
  nodes.claim(TwoNodes::kOther);
  nodes.seal(3, 1);
  EXPECT_TRUE(withdraw(nodes.other, nodes.identity(3, 1), Error(ErrorCode::kIo, "late")));
  EXPECT_EQ(read_run(nodes.other)->attempts.at(0).manifest->outcome, Outcome::kAborted);
}

TEST_F(SeveralRanks, WhoCantReadTheClaimsAbortsNothingOfANode) {
  TwoNodes nodes;
  nodes.claim();
  nodes.seal(3, 1);
  const Identity own = nodes.identity(3, 1);
  const auto counted = nodes.other.clone();
  std::ignore = withdraw(*counted, own, Error(ErrorCode::kIo, "late"));
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = nodes.other.clone();
    disk->fail_read_at(index, EIO);
    EXPECT_FALSE(withdraw(*disk, own, Error(ErrorCode::kIo, "late"))) << index;
    EXPECT_TRUE(read_run(*disk)->attempts.at(0).undecided()) << index;
  }
}

TEST_F(SeveralRanks, UnsealedFilesAreTakenToo) {
  ASSERT_TRUE(join_attempt(disk_, kAttempt));
  disk_.plant(kDirectory + "/" + part_file_name({1, 2, 0, 1}), "half");
  disk_.plant(kDirectory + "/" + part_file_name({0, 2, 0, 1}), "half");
  remove_own_files(disk_, identity(1));
  EXPECT_EQ(names(), std::vector<std::string>{"rank-00000-of-00002-0-of-1.part"});
}

TEST_F(SeveralRanks, WhereRank0WithdrawsTheAttemptIsOverForAll) {
  ASSERT_TRUE(seal(1));
  EXPECT_TRUE(
      withdraw(disk_, identity(0), Error(ErrorCode::kNoSpace, "the disk of rank 0 is full")));
  const auto seen = await(kLong);
  ASSERT_EQ(code_of(seen), ErrorCode::kCancelled);
  EXPECT_TRUE(seen.error().message().contains("the disk of rank 0 is full"))
      << seen.error().message();
  EXPECT_EQ(code_of(commit()), ErrorCode::kCancelled);
}

TEST_F(SeveralRanks, OneThatNeverJoinedCanWithdraw) {
  withdraw_unjoined(disk_, identity(1), Error(ErrorCode::kNoSpace, "no memory"));
  EXPECT_EQ(names(), std::vector<std::string>{"rank-00001-of-00002-0-of-1.failed"});
}

// Neither outcome can be written: rank 0 may still publish.
TEST_F(SeveralRanks, WhoCanNotAbortWhatItHasSealedDoesNotKnow) {
  ASSERT_TRUE(seal(0) && seal(1));
  disk_.set_bytes_free(0);
  EXPECT_FALSE(withdraw(disk_, identity(1), Error(ErrorCode::kIo, "the sync failed")));
  disk_.set_bytes_free(1 << 20);
  EXPECT_TRUE(commit());
}

// Another rank has given it up, and a collector has come by.
TEST_F(SeveralRanks, WhoWithdrawsFromWhatIsDeletedDoesNotMakeItAgain) {
  ASSERT_TRUE(seal(0) && seal(1));
  EXPECT_TRUE(withdraw(disk_, identity(0), Error(ErrorCode::kIo, "the disk of rank 0 failed")));
  ASSERT_TRUE(remove_attempt(disk_, kAttempt));
  for (const std::uint32_t rank : {0U, 1U}) {
    EXPECT_TRUE(withdraw(disk_, identity(rank), Error(ErrorCode::kIo, "the disk failed")));
    EXPECT_EQ(code_of(disk_.list(kDirectory)), ErrorCode::kNotFound) << rank;
  }
}

// If the disk has no room even for the word "aborted", the attempt itself goes.
TEST_F(SeveralRanks, Rank0GivesUpOnAFullDisk) {
  ASSERT_TRUE(seal(1));
  disk_.set_bytes_free(0);
  EXPECT_TRUE(withdraw(disk_, identity(0), Error(ErrorCode::kNoSpace, "full")));
  EXPECT_EQ(code_of(await()), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deepfreeze::several_ranks_test
