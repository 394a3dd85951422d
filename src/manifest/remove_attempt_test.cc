#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "base/fail_point.h"
#include "crash/attempt_maker.h"
#include "manifest/run_directory.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

const AttemptName kName{3, 3};

class RemoveAttempt : public testing::Test {
 protected:
  RemoveAttempt() : run_id_(create_or_open_run(disk_, {})->run_id) {
    EXPECT_TRUE(save_attempt(disk_, make_identity(run_id_, {1, 3, 3, 3})).has_value());
    EXPECT_TRUE(save_attempt(disk_, make_identity(run_id_, {1, 4, 4, 4})).has_value());
  }
  ~RemoveAttempt() override { fail_points::disarm(); }

  std::string path(std::string_view file) const {
    return attempt_dir_name(kName) + "/" + std::string(file);
  }
  bool gone() {
    const auto entries = disk_.list(attempt_dir_name(kName));
    return !entries && entries.error().code() == ErrorCode::kNotFound;
  }

  SimDisk disk_;
  std::string run_id_;
};

TEST_F(RemoveAttempt, LeavesNothingAndOnlyOfItsOwn) {
  ASSERT_TRUE(remove_attempt(disk_, kName).has_value());
  EXPECT_TRUE(gone());
  EXPECT_EQ(read_run(disk_)->attempts.size(), 1U);
  EXPECT_TRUE(remove_attempt(disk_, kName).has_value()) << "twice";
}

TEST_F(RemoveAttempt, ABadManifestIsLeftAlone) {
  ASSERT_TRUE(disk_.flip_bit(path(kManifestFile), 100));
  const Status removed = remove_attempt(disk_, kName);
  ASSERT_FALSE(removed.has_value());
  EXPECT_EQ(removed.error().code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(disk_.contents(path(sealed_file_name({}))).has_value());
}

TEST_F(RemoveAttempt, StoppedAnywhereItIsNeverCommittedAndCanBeFinished) {
  for (const char* point : {"remove.manifest_removed", "remove.manifest_synced",
                            "remove.files_removed", "remove.files_synced"}) {
    const auto copy = disk_.clone();
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error").has_value());
    EXPECT_FALSE(remove_attempt(*copy, kName).has_value()) << point;
    fail_points::disarm();
    const auto listing = read_run(*copy);
    ASSERT_EQ(listing->half_deleted.size(), 1U) << point;
    EXPECT_EQ(listing->attempts.size(), 1U) << point;
    ASSERT_TRUE(remove_attempt(*copy, kName).has_value()) << point;
    EXPECT_FALSE(copy->list(attempt_dir_name(kName)).has_value()) << point;
  }
}

// As a collector of an object store leaves it that dies in the middle of step 1.
TEST_F(RemoveAttempt, AManifestBesideItsDeletedNameGoesFirst) {
  disk_.plant(path(kDeletedManifestFile), disk_.contents(path(kManifestFile)).value());
  EXPECT_EQ(read_run(disk_)->half_deleted.size(), 1U);
  ASSERT_TRUE(fail_points::arm("remove.manifest_synced=error"));
  EXPECT_FALSE(remove_attempt(disk_, kName));
  fail_points::disarm();
  EXPECT_FALSE(disk_.contents(path(kManifestFile)));
  EXPECT_TRUE(disk_.contents(path(sealed_file_name({}))));
  ASSERT_TRUE(remove_attempt(disk_, kName));
  EXPECT_TRUE(gone());
}

TEST_F(RemoveAttempt, WhatCanNotGoKeepsNothingElse) {
  ASSERT_TRUE(disk_.make_dir(path("foreign")));
  disk_.plant(path("foreign/file"), "mine");
  EXPECT_FALSE(remove_attempt(disk_, kName));
  EXPECT_FALSE(disk_.contents(path(sealed_file_name({}))));
  EXPECT_EQ(read_run(disk_)->half_deleted.size(), 1U) << "to be tried again";
}

TEST_F(RemoveAttempt, StoppedBeforeTheLastSyncItSaysSo) {
  ASSERT_TRUE(fail_points::arm("remove.directory_removed=error").has_value());
  EXPECT_FALSE(remove_attempt(disk_, kName).has_value());
  fail_points::disarm();
  EXPECT_TRUE(gone());
  EXPECT_GT(disk_.pending_count(), 0U);
}

TEST_F(RemoveAttempt, AnAbortedAttemptStaysAbortedUntilItIsGone) {
  const AttemptName name{5, 5};
  ASSERT_TRUE(begin_attempt(disk_, name).has_value());
  ASSERT_TRUE(write_and_seal(disk_, make_identity(run_id_, {1, 5, 5, 5})).has_value());
  Manifest aborted;
  aborted.outcome = Outcome::kAborted;
  aborted.run_id = run_id_;
  aborted.point = {1, 5, 5, 5};
  ASSERT_TRUE(abort_attempt(disk_, aborted).has_value());
  ASSERT_TRUE(fail_points::arm("remove.files_synced=error").has_value());
  EXPECT_FALSE(remove_attempt(disk_, name).has_value());
  fail_points::disarm();
  EXPECT_EQ(read_manifest(disk_, name, run_id_)->outcome, Outcome::kAborted);
  ASSERT_TRUE(remove_attempt(disk_, name).has_value());
  EXPECT_FALSE(disk_.list(attempt_dir_name(name)).has_value());
}

TEST_F(RemoveAttempt, AnOwnerMayRemoveWhatIsUndecided) {
  const AttemptName name{5, 5};
  ASSERT_TRUE(begin_attempt(disk_, name).has_value());
  ASSERT_TRUE(write_and_seal(disk_, make_identity(run_id_, {1, 5, 5, 5})).has_value());
  ASSERT_TRUE(remove_attempt(disk_, name).has_value());
  EXPECT_FALSE(disk_.list(attempt_dir_name(name)).has_value());
}

TEST_F(RemoveAttempt, AnotherCollectorFinishesWhereverTheFirstDied) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(remove_attempt(*counted, kName).has_value());
  const std::size_t operations = counted->operation_count();
  ASSERT_GT(operations, 5U);
  for (std::size_t index = 0; index < operations; ++index) {
    const auto copy = disk_.clone();
    copy->fail_at(index, EIO);
    EXPECT_FALSE(remove_attempt(*copy, kName).has_value()) << index;
    EXPECT_TRUE(remove_attempt(*copy, kName).has_value()) << index;
    EXPECT_FALSE(copy->list(attempt_dir_name(kName)).has_value()) << index;
  }
}

TEST_F(RemoveAttempt, CollectorsAtOneTimeAllSucceed) {
  for (int round = 0; round < 50; ++round) {
    const auto copy = disk_.clone();
    {
      std::vector<std::jthread> collectors;
      for (int i = 0; i < 3; ++i) {
        collectors.emplace_back([&copy] {
          const Status removed = remove_attempt(*copy, kName);
          EXPECT_TRUE(removed.has_value()) << removed.error().message();
        });
      }
    }
    EXPECT_FALSE(copy->list(attempt_dir_name(kName)).has_value());
  }
}

}  // namespace
}  // namespace deepfreeze
