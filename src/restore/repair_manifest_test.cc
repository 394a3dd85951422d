// The repair of a manifest, on a disk that loses power.
#include "restore/repair_manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/fail_point.h"
#include "crash/attempt_maker.h"
#include "format/strict_json.h"
#include "manifest/claims.h"
#include "manifest/run_directory.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kImagesMax = 2000;
const AttemptName kName{3, 3};

// A run whose checkpoint of step 3, of two ranks, has a manifest with a flipped bit.
class RepairManifest : public testing::Test {
 protected:
  RepairManifest() : run_id_(create_or_open_run(disk_, {})->run_id) {
    EXPECT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
    const Identity first = identity({0, 2, 0, 1});
    EXPECT_TRUE(begin_attempt(disk_, kName).has_value());
    EXPECT_TRUE(write_and_seal(disk_, first).has_value());
    EXPECT_TRUE(write_and_seal(disk_, identity({1, 2, 0, 1})).has_value());
    EXPECT_TRUE(commit_attempt(disk_, make_request(first)).has_value());
    good_ = text_of(disk_, kManifestFile);
    EXPECT_TRUE(disk_.flip_bit(path(kManifestFile), 8 * 120));
    damaged_ = text_of(disk_, kManifestFile);
  }
  ~RepairManifest() override { fail_points::disarm(); }

  Identity identity(PartName part) const {
    return make_identity(run_id_, {1, 3, 3, kName.attempt_id}, part);
  }
  static std::string path(std::string_view file) {
    return join_name(attempt_dir_name(kName), file);
  }
  static std::string text_of(const SimDisk& disk, std::string_view file) {
    return disk.contents(path(file)).value_or("(none)");
  }
  Result<std::string> repair(Vfs& disk) const {
    DF_TRY(const RepairPlan plan, plan_repair(disk, run_id_, kName));
    return repair_manifest(disk, plan, {});
  }
  // Is a copy of the damaged one there?
  bool is_kept(SimDisk& disk) const {
    const auto entries = disk.list(attempt_dir_name(kName));
    return std::ranges::any_of(*entries, [&](const DirEntry& entry) {
      return entry.name.starts_with("manifest.bad-") && text_of(disk, entry.name) == damaged_;
    });
  }
  // What a power cut may not change, whenever it comes.
  bool is_sound(SimDisk& disk) const {
    const std::string text = text_of(disk, kManifestFile);
    return text == damaged_ || (text == good_ && is_kept(disk));
  }
  void expect_refused(const char* why, ErrorCode code) {
    const auto plan = plan_repair(disk_, run_id_, kName);
    EXPECT_EQ(code_of(plan), code) << why;
    EXPECT_EQ(text_of(disk_, kManifestFile), damaged_) << why;
  }

  SimDisk disk_;
  std::string run_id_;
  std::string good_;
  std::string damaged_;
};

TEST_F(RepairManifest, PublishesWhatWasPublishedAndKeepsTheDamagedOne) {
  const auto kept = repair(disk_);
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  EXPECT_EQ(text_of(disk_, kManifestFile), good_);
  EXPECT_EQ(disk_.contents(*kept), damaged_);
  EXPECT_EQ(disk_.pending_count(), 0U) << "durable";
  const auto listing = read_run(disk_);
  ASSERT_EQ(listing->attempts.size(), 1U);
  EXPECT_TRUE(listing->attempts[0].committed());
}

TEST_F(RepairManifest, APowerCutAnywhereLeavesTheDamagedOneOrTheNewOne) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(repair(*counted).has_value());
  const std::size_t operations = counted->operation_count();
  ASSERT_GE(operations, 8U);
  for (std::size_t index = 0; index <= operations; ++index) {
    const auto disk = disk_.clone();
    disk->crash_at(index);
    EXPECT_EQ(repair(*disk).has_value(), index == operations);
    for (const auto& image : disk->crash_images(kImagesMax, index)) {
      ASSERT_TRUE(is_sound(*image)) << index << ", " << image->label();
      const bool mended = text_of(*image, kManifestFile) == good_;
      ASSERT_TRUE(mended || index < operations) << image->label();
      if (mended) continue;
      ASSERT_TRUE(repair(*image).has_value()) << "the next one goes through: " << image->label();
      ASSERT_TRUE(is_sound(*image));
    }
  }
}

TEST_F(RepairManifest, EverySyncOfItIsNeeded) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(repair(*counted).has_value());
  std::size_t syncs = 0;
  for (const SimOperation& operation : counted->operations()) {
    const bool is_sync =
        operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
    if (!is_sync) continue;
    ++syncs;
    bool betrayed = false;
    for (std::size_t cut = operation.index; cut <= counted->operation_count(); ++cut) {
      const auto disk = disk_.clone();
      disk->ignore_sync(operation.index);
      disk->crash_at(cut);
      const bool done = repair(*disk).has_value();
      for (const auto& image : disk->crash_images(kImagesMax, cut)) {
        if (!is_sound(*image)) betrayed = true;
        if (done && text_of(*image, kManifestFile) != good_) betrayed = true;
      }
    }
    EXPECT_TRUE(betrayed) << operation.index << ": " << operation.name;
  }
  EXPECT_EQ(syncs, 4U);
}

TEST_F(RepairManifest, AnErrorAnywhereLeavesItRepairable) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(repair(*counted).has_value());
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {
    for (const int cause : {EIO, ENOSPC, EROFS}) {
      const auto disk = disk_.clone();
      disk->fail_at(index, cause);
      EXPECT_FALSE(repair(*disk).has_value()) << index;
      EXPECT_TRUE(is_sound(*disk)) << index;
      if (text_of(*disk, kManifestFile) == good_) continue;  // only its last sync failed
      EXPECT_TRUE(repair(*disk).has_value()) << index;
      EXPECT_EQ(text_of(*disk, kManifestFile), good_);
    }
  }
}

TEST_F(RepairManifest, StopsAtEveryDurableStep) {
  for (const char* point : {"repair.copy_written", "repair.copy_renamed", "repair.copy_synced",
                            "repair.written", "repair.renamed", "repair.synced"}) {
    const auto disk = disk_.clone();
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error").has_value());
    EXPECT_FALSE(repair(*disk).has_value()) << point;
    fail_points::disarm();
    EXPECT_TRUE(is_sound(*disk)) << point;
    if (text_of(*disk, kManifestFile) == good_) continue;
    EXPECT_TRUE(repair(*disk).has_value()) << point;
    EXPECT_TRUE(is_sound(*disk)) << point;
  }
}

TEST_F(RepairManifest, WhoeverComesSecondFindsTheSame) {
  const auto plan = plan_repair(disk_, run_id_, kName);
  ASSERT_TRUE(plan.has_value());
  ASSERT_TRUE(repair(disk_).has_value());
  EXPECT_EQ(code_of(repair_manifest(disk_, *plan, {})), ErrorCode::kCancelled);
  EXPECT_EQ(text_of(disk_, kManifestFile), good_);
}

TEST_F(RepairManifest, AManifestThatWasTakenAwayMeanwhileIsNotBroughtBack) {
  const auto plan = plan_repair(disk_, run_id_, kName);
  ASSERT_TRUE(plan.has_value());
  ASSERT_TRUE(disk_.remove_file(path(kManifestFile)).has_value());
  EXPECT_FALSE(repair_manifest(disk_, *plan, {}).has_value());
  EXPECT_EQ(text_of(disk_, kManifestFile), "(none)");
}

TEST_F(RepairManifest, ADeletionThatHasBegunIsLeftToItself) {
  const auto plan = plan_repair(disk_, run_id_, kName);
  ASSERT_TRUE(plan.has_value());
  disk_.plant(path(kDeletedManifestFile), good_);
  EXPECT_EQ(code_of(repair_manifest(disk_, *plan, {})), ErrorCode::kCancelled);
  EXPECT_EQ(text_of(disk_, kManifestFile), damaged_);
}

TEST_F(RepairManifest, AClaimThatComesMeanwhileEndsIt) {
  const auto plan = plan_repair(disk_, run_id_, kName);
  ASSERT_TRUE(plan.has_value());
  ASSERT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
  EXPECT_EQ(code_of(repair_manifest(disk_, *plan, {})), ErrorCode::kFenced);
  expect_refused("and from the beginning", ErrorCode::kFenced);
}

TEST_F(RepairManifest, ABadBlockEndsIt) {
  const std::string part = sealed_file_name({1, 2, 0, 1});
  const std::uint64_t bytes = text_of(disk_, part).size();
  ASSERT_TRUE(disk_.flip_bit(path(part), bytes * 8 - 1));
  const auto repaired = repair(disk_);
  EXPECT_EQ(code_of(repaired), ErrorCode::kCorrupt);
  EXPECT_NE(repaired.error().message().find("weights_1_0"), std::string::npos);
  EXPECT_EQ(text_of(disk_, kManifestFile), damaged_);
}

TEST_F(RepairManifest, AHeaderOrARankThatIsLostEndsIt) {
  const std::string part = path(sealed_file_name({1, 2, 0, 1}));
  ASSERT_TRUE(disk_.flip_bit(part, 8 * 100));
  expect_refused("a torn header", ErrorCode::kCorrupt);
  ASSERT_TRUE(disk_.remove_file(part).has_value());
  expect_refused("a missing rank", ErrorCode::kIncomplete);
  ASSERT_TRUE(disk_.remove_file(path(sealed_file_name({0, 2, 0, 1}))).has_value());
  expect_refused("no file at all", ErrorCode::kIncomplete);
}

TEST_F(RepairManifest, AFailedRankOrOneOfAnotherWorldEndsIt) {
  disk_.plant(path(failed_file_name({1, 2, 0, 1})), "out of memory");
  expect_refused("a rank that failed", ErrorCode::kIncomplete);
  ASSERT_TRUE(disk_.remove_file(path(failed_file_name({1, 2, 0, 1}))).has_value());
  disk_.plant(path(sealed_file_name({1, 3, 0, 1})), "foreign");
  expect_refused("a part of three ranks", ErrorCode::kMismatch);
}

TEST_F(RepairManifest, FilesOfAnotherRunEndIt) {
  const auto plan = plan_repair(disk_, "0123456789abcdef", kName);
  EXPECT_EQ(code_of(plan), ErrorCode::kIncomplete);
}

TEST_F(RepairManifest, AManifestThatVerifiesIsNotReplaced) {
  disk_.plant(path(kManifestFile), good_);
  EXPECT_EQ(code_of(plan_repair(disk_, run_id_, kName)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(text_of(disk_, kManifestFile), good_);
}

TEST_F(RepairManifest, AnAbortedAttemptStaysAborted) {
  Manifest aborted{.outcome = Outcome::kAborted, .run_id = run_id_, .world_size = 2};
  aborted.point = {.generation = 1, .step = 3, .save_index = 3, .attempt_id = 3};
  damaged_ = encode_manifest(aborted);
  damaged_[60] ^= 1;
  disk_.plant(path(kManifestFile), damaged_);
  expect_refused("its text says so", ErrorCode::kMismatch);
  damaged_ = std::string(damaged_.size(), '\0');
  disk_.plant(path(kManifestFile), damaged_);
  expect_refused("its length says so", ErrorCode::kMismatch);
  damaged_.clear();
  disk_.plant(path(kManifestFile), damaged_);
  expect_refused("nothing says anything", ErrorCode::kMismatch);
}

TEST_F(RepairManifest, ZerosOfTheRightLengthAndARestThatSaysCommittedAreEnough) {
  for (const std::string& text :
       {std::string(good_.size(), '\0'), good_.substr(0, good_.find("\"files\""))}) {
    damaged_ = text;
    disk_.plant(path(kManifestFile), damaged_);
    const auto kept = repair(disk_);
    ASSERT_TRUE(kept.has_value()) << kept.error().message();
    EXPECT_EQ(text_of(disk_, kManifestFile), good_);
    EXPECT_EQ(disk_.contents(*kept), damaged_);
  }
}

TEST_F(RepairManifest, ANewerVersionsManifestIsNotDamaged) {
  const nlohmann::ordered_json newer{
      {"kind", "manifest"}, {"format_version", 2}, {"outcome", "committed"}};
  damaged_ = seal_json(newer);
  disk_.plant(path(kManifestFile), damaged_);
  expect_refused("it may say what we don't know", ErrorCode::kUnsupported);
}

TEST_F(RepairManifest, WhatCantBeReadMayBeWhole) {
  disk_.fail_read_at(disk_.read_count(), EIO);
  EXPECT_EQ(code_of(plan_repair(disk_, run_id_, kName)), ErrorCode::kIo);
}

}  // namespace
}  // namespace deepfreeze
