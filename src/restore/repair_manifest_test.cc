// The repair of a manifest, on a disk that loses power.
#include "restore/repair_manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "base/fail_point.h"
#include "crash/attempt_maker.h"
#include "format/header_fixture.h"
#include "format/sealed_fixture.h"
#include "manifest/claims.h"
#include "manifest/run_directory.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"
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
  static Result<RepairPlan> plan(Vfs& disk) {
    DF_TRY(const RunListing listing, read_run(disk));
    return plan_repair(disk, listing, kName);
  }
  static Result<std::string> repair(Vfs& disk) {
    DF_TRY(const RepairPlan planned, plan(disk));
    return repair_manifest(disk, planned, {});
  }
  std::uint64_t claim(std::optional<Point> resumed_from) {
    return claim_generation(disk_, run_id_, resumed_from)->generation;
  }
  static std::size_t kept_count(SimDisk& disk) {
    return static_cast<std::size_t>(std::ranges::count_if(
        *disk.list(attempt_dir_name(kName)),
        [](const DirEntry& entry) { return entry.name.starts_with("manifest.bad-"); }));
  }
  // Is a copy of the damaged one there?
  bool is_kept(SimDisk& disk) const {
    const auto entries = disk.list(attempt_dir_name(kName));
    return std::ranges::any_of(*entries, [&](const DirEntry& entry) {
      return entry.name.starts_with("manifest.bad-") && text_of(disk, entry.name) == damaged_;
    });
  }
  // A power cut may not change this, whenever it comes.
  bool is_sound(SimDisk& disk) const {
    const std::string text = text_of(disk, kManifestFile);
    return text == damaged_ || (text == good_ && is_kept(disk));
  }
  void expect_refused(const char* why, ErrorCode code) {
    EXPECT_EQ(code_of(plan(disk_)), code) << why;
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
      EXPECT_EQ(kept_count(*disk), 1U) << index;
    }
  }
}

TEST_F(RepairManifest, AReadErrorAnywhereLeavesItRepairable) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(repair(*counted).has_value());
  std::size_t refused = 0;
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = disk_.clone();
    disk->fail_read_at(index, EIO);
    const bool repaired = repair(*disk).has_value();
    if (!repaired) ++refused;
    EXPECT_TRUE(is_sound(*disk)) << index;
    EXPECT_EQ(text_of(*disk, kManifestFile) == good_, repaired) << index;
    EXPECT_TRUE(repaired || repair(*disk).has_value()) << index;
    EXPECT_EQ(text_of(*disk, kManifestFile), good_) << index;
    EXPECT_EQ(kept_count(*disk), 1U) << index;
  }
  EXPECT_GT(refused, 10U);
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
  const auto planned = plan(disk_);
  ASSERT_TRUE(planned.has_value());
  ASSERT_TRUE(repair(disk_).has_value());
  EXPECT_EQ(code_of(repair_manifest(disk_, *planned, {})), ErrorCode::kCancelled);
  EXPECT_EQ(text_of(disk_, kManifestFile), good_);
}

TEST_F(RepairManifest, AManifestThatWasTakenAwayMeanwhileIsNotBroughtBack) {
  const auto planned = plan(disk_);
  ASSERT_TRUE(planned.has_value());
  ASSERT_TRUE(disk_.remove_file(path(kManifestFile)).has_value());
  EXPECT_EQ(code_of(repair_manifest(disk_, *planned, {})), ErrorCode::kCancelled);
  EXPECT_EQ(text_of(disk_, kManifestFile), "(none)");
}

TEST_F(RepairManifest, AnAttemptThatWasDeletedMeanwhileIsGone) {
  const auto planned = plan(disk_);
  ASSERT_TRUE(planned.has_value());
  const std::string directory = attempt_dir_name(kName);
  const auto entries = disk_.list(directory);
  for (const DirEntry& entry : *entries) {
    ASSERT_TRUE(disk_.remove_file(join_name(directory, entry.name)).has_value());
  }
  ASSERT_TRUE(disk_.remove_dir(directory).has_value());
  EXPECT_EQ(code_of(repair_manifest(disk_, *planned, {})), ErrorCode::kGone);
  EXPECT_EQ(text_of(disk_, kManifestFile), "(none)");
}

TEST_F(RepairManifest, ADeletionThatHasBegunIsLeftToItself) {
  const auto planned = plan(disk_);
  ASSERT_TRUE(planned.has_value());
  disk_.plant(path(kDeletedManifestFile), good_);
  EXPECT_EQ(code_of(repair_manifest(disk_, *planned, {})), ErrorCode::kCancelled);
  EXPECT_EQ(text_of(disk_, kManifestFile), damaged_);
}

TEST_F(RepairManifest, AClaimThatComesMeanwhileEndsIt) {
  const auto planned = plan(disk_);
  ASSERT_TRUE(planned.has_value());
  claim(std::nullopt);
  EXPECT_EQ(code_of(repair_manifest(disk_, *planned, {})), ErrorCode::kFenced);
  expect_refused("and from the beginning", ErrorCode::kFenced);
  EXPECT_EQ(kept_count(disk_), 0U) << "nor is a copy kept for nothing";
}

TEST_F(RepairManifest, WhatTheLineOfAllNewerClaimsPassesThroughIsRepaired) {
  claim(Point{1, 3, 3, 3});  // from this checkpoint itself
  claim(Point{2, 5, 9, 9});  // and from one that came of it
  const auto kept = repair(disk_);
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  EXPECT_EQ(text_of(disk_, kManifestFile), good_);
}

TEST_F(RepairManifest, BesideTheLineItIsNotRepaired) {
  claim(Point{1, 2, 2, 2});  // from the one before
  expect_refused("a newer line was begun without it", ErrorCode::kFenced);
}

TEST_F(RepairManifest, WhereANewerClaimIsLostNobodyKnowsTheLine) {
  claim(Point{1, 3, 3, 3});
  const std::string lost = generation_file_name(claim(Point{2, 5, 9, 9}));
  ASSERT_TRUE(disk_.flip_bit(lost, 300));
  expect_refused("the newest does not verify", ErrorCode::kFenced);
  ASSERT_TRUE(disk_.flip_bit(lost, 300));
  ASSERT_TRUE(disk_.remove_file(generation_file_name(2)).has_value());
  expect_refused("one in between is gone", ErrorCode::kFenced);
}

TEST_F(RepairManifest, WithoutAnyClaimNothingIsNewer) {
  ASSERT_TRUE(disk_.remove_file(generation_file_name(1)).has_value());
  EXPECT_TRUE(repair(disk_).has_value());
}

// A disk on which another process acts as the second temporary file, the new manifest's, is made:
// after step 6, and before the last look of step 8.
class BusyDisk final : public PassingVfs {
 public:
  BusyDisk(SimDisk& disk, std::function<void()> action)
      : PassingVfs(disk), action_(std::move(action)) {}

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    if (++created_ == 2) action_();
    return disk_.create(name, access);
  }

 private:
  std::function<void()> action_;
  int created_ = 0;
};

TEST_F(RepairManifest, WhatHappensWhileTheNewOneIsWrittenEndsIt) {
  const auto before = disk_.clone();
  const std::vector<std::pair<ErrorCode, std::function<void(SimDisk&)>>> cases = {
      {ErrorCode::kCancelled,
       [&](SimDisk& disk) { disk.plant(path(kDeletedManifestFile), damaged_); }},
      {ErrorCode::kCancelled, [&](SimDisk& disk) { disk.plant(path(kManifestFile), good_); }},
      {ErrorCode::kFenced,
       [&](SimDisk& disk) { EXPECT_TRUE(claim_generation(disk, run_id_, {}).has_value()); }}};
  for (const auto& [code, action] : cases) {
    const auto disk = before->clone();
    BusyDisk busy(*disk, [&] { action(*disk); });
    EXPECT_EQ(code_of(repair(busy)), code);
    EXPECT_TRUE(is_sound(*disk) || text_of(*disk, kManifestFile) == good_);
    for (const std::string& name : disk->list_all()) EXPECT_FALSE(name.ends_with(".tmp")) << name;
  }
}

// The repair before it failed when the copy had its name, but not yet for good.
TEST_F(RepairManifest, ACopyThatIsThereIsMadeDurableFirst) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(repair(*counted).has_value());
  for (std::size_t cut = 0; cut <= counted->operation_count(); ++cut) {
    SimDisk disk;
    for (const std::string& name : disk_.list_all()) {
      if (!name.ends_with('/')) disk.plant(name, disk_.contents(name).value());
    }
    ASSERT_TRUE(fail_points::arm("repair.copy_renamed=error").has_value());
    ASSERT_FALSE(repair(disk).has_value());
    fail_points::disarm();
    ASSERT_EQ(kept_count(disk), 1U);
    disk.crash_at(disk.operation_count() + cut);
    std::ignore = repair(disk);
    for (const auto& image : disk.crash_images(kImagesMax, cut)) {
      ASSERT_TRUE(is_sound(*image)) << cut << ", " << image->label();
    }
  }
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
  EXPECT_TRUE(plan(disk_).error().message().contains("no file of it has a readable header"));
}

TEST_F(RepairManifest, AFailedRankOrOneOfAnotherWorldEndsIt) {
  disk_.plant(path(failed_file_name({1, 2, 0, 1})), "out of memory");
  expect_refused("a rank that failed", ErrorCode::kIncomplete);
  ASSERT_TRUE(disk_.remove_file(path(failed_file_name({1, 2, 0, 1}))).has_value());
  disk_.plant(path(sealed_file_name({1, 3, 0, 1})), "foreign");
  expect_refused("a part of three ranks", ErrorCode::kMismatch);
}

TEST_F(RepairManifest, FilesOfAnotherRunEndIt) {
  RunListing listing = *read_run(disk_);
  listing.run.run_id = "0123456789abcdef";
  EXPECT_EQ(code_of(plan_repair(disk_, listing, kName)), ErrorCode::kIncomplete);
}

TEST_F(RepairManifest, AManifestThatVerifiesIsNotReplaced) {
  disk_.plant(path(kManifestFile), good_);
  const auto refused = plan(disk_);
  ASSERT_EQ(code_of(refused), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(refused.error().message().contains("verifies")) << refused.error().message();
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

// The text may have held something that the headers don't tell.
TEST_F(RepairManifest, ATextThatIsLongerThanTheNewOneIsNotReplaced) {
  damaged_ = replaced(good_, "\"outcome\"", "\"extra\":1,\"outcome\"");
  disk_.plant(path(kManifestFile), damaged_);
  expect_refused("another writer's", ErrorCode::kMismatch);
}

TEST_F(RepairManifest, ANewerVersionsManifestIsNotDamaged) {
  const auto listing = read_run(disk_);
  const nlohmann::ordered_json newer{
      {"kind", "manifest"}, {"format_version", 3}, {"outcome", "committed"}};
  damaged_ = seal_json(newer);
  disk_.plant(path(kManifestFile), damaged_);
  expect_refused("it may say what we don't know", ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(plan_repair(disk_, *listing, kName)), ErrorCode::kUnsupported);
}

TEST_F(RepairManifest, WhatCantBeReadMayBeWhole) {
  const auto listing = read_run(disk_);
  disk_.fail_read_at(disk_.read_count(), EIO);
  EXPECT_EQ(code_of(plan_repair(disk_, *listing, kName)), ErrorCode::kIo);
}

}  // namespace
}  // namespace deepfreeze
