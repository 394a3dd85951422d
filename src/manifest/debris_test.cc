// Debris and the survey that finds it, on a disk that loses power.
#include "manifest/debris.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/fail_point.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/name_kind.h"
#include "manifest/run_file.h"
#include "manifest/scrub_memory.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kImagesMax = 2000;
const AttemptName kFenced{5, 5};

// This disk has no clock, so that the age is put in by hand.
std::vector<Oddity> survey_of_old(Vfs& disk, const RunListing& listing) {
  std::vector<Oddity> found = survey_run(disk, listing).value_or(std::vector<Oddity>{});
  for (Oddity& one : found) one.age_micros = std::int64_t{3601} * 1'000'000;
  return found;
}

std::vector<Oddity> old_temporaries(Vfs& disk, const RunListing& listing) {
  std::vector<Oddity> found = survey_of_old(disk, listing);
  std::erase_if(found, [](const Oddity& one) { return one.kind != OddityKind::kTemporary; });
  return found;
}

std::vector<std::string> names_of(const std::vector<Leaving>& leavings) {
  std::vector<std::string> names;
  for (const Leaving& leaving : leavings) names.push_back(leaving.name);
  return names;
}

std::vector<std::string> names_of_attempts(const std::vector<std::uint64_t>& steps) {
  std::vector<std::string> names;
  for (const std::uint64_t step : steps) names.push_back(attempt_dir_name({step, step}));
  return names;
}

// Step 4 is committed, 3 half deleted, 5 left undecided by a fenced process, 6 aborted, 7 open.
class DebrisOnDisk : public testing::Test {
 protected:
  DebrisOnDisk() : run_id_(create_or_open_run(disk_, {})->run_id) {
    claim();
    save(3);
    save(4);
    begin(5);
    claim();
    begin(6);
    Manifest aborted{.outcome = Outcome::kAborted, .run_id = run_id_};
    aborted.point = {.generation = 2, .step = 6, .save_index = 6, .attempt_id = 6};
    EXPECT_TRUE(abort_attempt(disk_, aborted).has_value());
    begin(7);
    const std::string third = attempt_dir_name({3, 3});
    EXPECT_TRUE(disk_.rename_no_replace(join_name(third, kManifestFile),
                                        join_name(third, kDeletedManifestFile)));
    EXPECT_TRUE(disk_.sync_dir(third));
  }

  Identity identity(std::uint64_t step) const {
    return make_identity(run_id_, {generation_, step, step, step});
  }
  void claim() { generation_ = claim_generation(disk_, run_id_, {})->generation; }
  void save(std::uint64_t step) {
    EXPECT_TRUE(save_attempt(disk_, identity(step)).has_value()) << step;
  }
  void begin(std::uint64_t step) {
    EXPECT_TRUE(begin_attempt(disk_, {step, step}).has_value());
    EXPECT_TRUE(write_and_seal(disk_, identity(step)).has_value());
  }
  static DebrisReport sweep(Vfs& disk) {
    const auto listing = read_run(disk);
    const auto found = listing ? survey_run(disk, *listing) : std::unexpected(listing.error());
    if (!found) return {.deleted = {}, .left = {}, .failed = true};
    return delete_debris(disk, *listing, *found);
  }
  static DebrisReport sweep_old(Vfs& disk) {
    const auto listing = read_run(disk);
    if (!listing) return {.deleted = {}, .left = {}, .failed = true};
    return delete_debris(disk, *listing, survey_of_old(disk, *listing));
  }
  std::size_t pending_at(std::size_t index) const {
    const auto disk = disk_.clone();
    disk->crash_at(index);
    std::ignore = sweep_old(*disk);
    return disk->pending_count();
  }
  // Does some power cut show that this sync was left out?
  bool betrayed_without(std::size_t sync, std::size_t operations, const std::string& file) const {
    for (std::size_t cut = sync + 1; cut <= operations; ++cut) {
      const auto disk = disk_.clone();
      disk->ignore_sync(sync);
      disk->crash_at(cut);
      const DebrisReport report = sweep_old(*disk);
      for (const auto& image : disk->crash_images(kImagesMax, cut)) {
        if (comes_back(*image) || !keeps_its_word(*image, report)) return true;
        if (sweep_old(*image).failed || image->contents(file) || !is_swept(*image)) return true;
      }
    }
    return false;
  }
  // Half-deleted or aborted attempts count again, or may be published.
  static bool comes_back(SimDisk& disk) {
    const auto listing = read_run(disk);
    return !listing || std::ranges::any_of(listing->attempts, [&](const AttemptState& attempt) {
      if (attempt.name.step != 3 && attempt.name.step != 6) return false;
      const bool is_empty = disk.list(attempt_dir_name(attempt.name))->empty();
      return attempt.committed() || (attempt.undecided() && !is_empty);
    });
  }
  static bool keeps_its_word(SimDisk& disk, const DebrisReport& report) {
    const std::vector<std::string> there = disk.list_all();
    return std::ranges::none_of(report.deleted, [&](const Leaving& gone) {
      return std::ranges::any_of(
          there, [&](const std::string& name) { return name.starts_with(gone.name); });
    });
  }
  static std::vector<std::uint64_t> steps_left(SimDisk& disk) {
    std::vector<std::uint64_t> steps;
    const auto entries = disk.list("");
    for (const DirEntry& entry : *entries) {
      if (const auto name = parse_attempt_dir_name(entry.name)) steps.push_back(name->step);
    }
    return steps;
  }
  // Only empty directories may be left beside 4 and 7: as far as anybody can tell, such a one was
  // made a moment ago, and the next claimant decides it.
  static bool is_swept(SimDisk& disk) {
    return std::ranges::all_of(steps_left(disk), [&](std::uint64_t step) {
      return step == 4 || step == 7 || disk.list(attempt_dir_name({step, step}))->empty();
    });
  }
  // No power cut and no error may change this.
  static void expect_sound(SimDisk& disk) {
    const auto listing = read_run(disk);
    ASSERT_TRUE(listing.has_value()) << disk.label();
    const auto committed = newest_first(*listing);
    ASSERT_EQ(committed.size(), 1U) << disk.label();
    EXPECT_EQ(committed[0].point.step, 4U);
    EXPECT_TRUE(verify_attempt(disk, committed[0]).has_value()) << disk.label();
    const auto open = std::ranges::find(listing->attempts, AttemptName{7, 7}, &AttemptState::name);
    ASSERT_NE(open, listing->attempts.end()) << disk.label();
    EXPECT_TRUE(open->undecided());
  }

  SimDisk disk_;
  std::string run_id_;
  std::uint64_t generation_ = 0;
};

TEST_F(DebrisOnDisk, GoesForGoodAndNothingElse) {
  const DebrisReport report = sweep(disk_);
  EXPECT_FALSE(report.failed);
  EXPECT_EQ(report.deleted.size(), 3U);
  EXPECT_TRUE(report.left.empty());
  for (const auto& image : disk_.crash_images(kImagesMax, 1)) {
    EXPECT_EQ(steps_left(*image), (std::vector<std::uint64_t>{4, 7})) << image->label();
    expect_sound(*image);
  }
}

TEST_F(DebrisOnDisk, APowerCutAnywhereLosesNothingElseAndTheNextSweepFinishes) {
  const auto counted = disk_.clone();
  ASSERT_FALSE(sweep(*counted).failed);
  const std::size_t operations = counted->operation_count();
  for (std::size_t index = 0; index < operations; ++index) {
    const auto disk = disk_.clone();
    disk->crash_at(index);
    EXPECT_TRUE(sweep(*disk).failed) << index;
    for (const auto& image : disk->crash_images(kImagesMax, index)) {
      expect_sound(*image);
      ASSERT_FALSE(sweep(*image).failed) << image->label();
      ASSERT_TRUE(is_swept(*image)) << index << ", " << image->label();
    }
    if (HasFailure()) return;
  }
}

TEST_F(DebrisOnDisk, AnErrorAnywhereIsToldAndTheNextSweepFinishes) {
  const auto counted = disk_.clone();
  ASSERT_FALSE(sweep(*counted).failed);
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {
    const auto disk = disk_.clone();
    disk->fail_at(index, EIO);
    const DebrisReport report = sweep(*disk);
    EXPECT_TRUE(report.failed) << index;
    EXPECT_FALSE(report.left.empty()) << index;
    expect_sound(*disk);
    EXPECT_FALSE(sweep(*disk).failed) << index;
    EXPECT_TRUE(is_swept(*disk)) << index;
  }
}

TEST_F(DebrisOnDisk, ADirectoryThatCantBeListedIsAnErrorOfTheSurvey) {
  const auto listing = read_run(disk_);
  const auto counted = disk_.clone();
  const auto found = survey_run(*counted, *listing);
  ASSERT_TRUE(found.has_value());
  std::size_t errors = 0;
  for (std::size_t read = 0; read < counted->read_count(); ++read) {
    const auto disk = disk_.clone();
    disk->fail_read_at(read, EIO);
    const auto partial = survey_run(*disk, *listing);
    // Files that only tell a size or a generation may be missing, nothing else.
    EXPECT_EQ(partial ? partial->size() : found->size(), found->size()) << read;
    errors += partial ? 0 : 1;
  }
  // The root, five attempts, and the claims for each undecided one with a header.
  EXPECT_EQ(errors, 8U);
}

// Each is told with its own fate: files that are gone for good are deleted, whatever became of the
// others.
TEST_F(DebrisOnDisk, WhatFailsIsToldOfWhatItFailedOn) {
  const std::string third = attempt_dir_name({3, 3});
  const auto counted = disk_.clone();
  ASSERT_FALSE(sweep(*counted).failed);
  for (const SimOperation& operation : counted->operations()) {
    if (operation.kind != SimOperationKind::kRemoveFile || !operation.name.starts_with(third)) {
      continue;
    }
    const auto disk = disk_.clone();
    disk->fail_at(operation.index, EIO);
    const DebrisReport report = sweep(*disk);
    EXPECT_TRUE(report.failed);
    EXPECT_EQ(names_of(report.deleted), names_of_attempts({6, 5})) << operation.name;
    ASSERT_EQ(names_of(report.left), names_of_attempts({3})) << operation.name;
    EXPECT_EQ(report.left[0].why, "remove file sim:/" + operation.name + ": Input/output error");
  }
}

TEST_F(DebrisOnDisk, OnlyASyncThatFailedLeavesToAPowerCutWhatIsGone) {
  const auto counted = disk_.clone();
  ASSERT_FALSE(sweep(*counted).failed);
  std::vector<std::size_t> root_syncs;
  for (const SimOperation& operation : counted->operations()) {
    const bool of_root = operation.kind == SimOperationKind::kSyncDir && operation.name.empty();
    if (of_root) root_syncs.push_back(operation.index);
  }
  ASSERT_EQ(root_syncs.size(), 2U) << "for what was dead, and for the fenced one";
  const auto first = disk_.clone();
  first->fail_at(root_syncs[0], EIO);
  const DebrisReport report = sweep(*first);
  EXPECT_EQ(names_of(report.deleted), names_of_attempts({5}));
  ASSERT_EQ(names_of(report.left), names_of_attempts({6, 3}));
  for (const Leaving& left : report.left) {
    EXPECT_TRUE(left.why.starts_with("it is gone, and a power cut may bring it back: sync"))
        << left.why;
  }
  const auto second = disk_.clone();
  second->fail_at(root_syncs[1], EIO);
  const DebrisReport other = sweep(*second);
  EXPECT_EQ(names_of(other.deleted), names_of_attempts({6, 3}));
  EXPECT_EQ(names_of(other.left), names_of_attempts({5}));
}

// Dead files come back only if nobody was told that they are gone, and never half.
TEST_F(DebrisOnDisk, EverySyncOfItIsNeeded) {
  const std::string file = attempt_dir_name({4, 4}) + "/manifest.0123456789abcdef.tmp";
  disk_.plant(file, "torn");
  const auto counted = disk_.clone();
  ASSERT_FALSE(sweep_old(*counted).failed);
  std::vector<std::string> unnoticed;
  for (const SimOperation& operation : counted->operations()) {
    const bool is_sync =
        operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
    if (!is_sync || pending_at(operation.index) == pending_at(operation.index + 1)) continue;
    if (!betrayed_without(operation.index, counted->operation_count(), file)) {
      unnoticed.push_back(operation.name);
    }
  }
  // Nothing was promised of the fenced attempt until it is removed: the sync of its "aborted" is
  // repeated by its removal, and if its files come back it is fenced as before. tests/crash leaves
  // these out if something was promised.
  const std::string fenced = attempt_dir_name(kFenced);
  EXPECT_EQ(unnoticed, (std::vector{fenced, fenced}));
}

TEST_F(DebrisOnDisk, WhereTheNewestStepIsGoneAnotherCollectorIsAtWork) {
  save(8);
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  ASSERT_TRUE(remove_attempt(disk_, {8, 8}).has_value());
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  EXPECT_FALSE(report.failed);
  EXPECT_TRUE(report.deleted.empty());
  ASSERT_EQ(names_of(report.left), names_of_attempts({5, 6, 3}));
  EXPECT_EQ(report.left[0].why, "another collector is at work: run it again");
}

// The newest is synced before anything is deleted, because a power cut might otherwise take it,
// too.
TEST_F(DebrisOnDisk, WhereTheNewestStepCantBeSyncedAllStays) {
  save(8);
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  const std::vector<std::string> before = disk_.list_all();
  disk_.fail_at(disk_.operation_count(), EIO);
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  EXPECT_TRUE(report.failed);
  EXPECT_TRUE(report.deleted.empty());
  EXPECT_EQ(disk_.list_all(), before);
  ASSERT_EQ(names_of(report.left), names_of_attempts({5, 6, 3}));
  for (const Leaving& left : report.left) {
    EXPECT_NE(left.why.find("Input/output error"), std::string::npos) << left.why;
  }
}

// Deletions that free room come first, because "aborted" needs some.
TEST_F(DebrisOnDisk, AFullDiskIsSwept) {
  disk_.set_bytes_free(0);
  const DebrisReport report = sweep(disk_);
  EXPECT_FALSE(report.failed) << report.left[0].why;
  EXPECT_EQ(names_of(report.deleted), names_of_attempts({6, 3, 5}));
}

// Its process may be about to publish it: without "aborted" its files must not go.
TEST_F(DebrisOnDisk, WhereNothingFreesRoomAFencedAttemptStaysWhole) {
  ASSERT_TRUE(remove_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(remove_attempt(disk_, {6, 6}).has_value());
  const auto before = disk_.list_all();
  disk_.set_bytes_free(0);
  const DebrisReport report = sweep(disk_);
  EXPECT_TRUE(report.failed);
  ASSERT_EQ(names_of(report.left), names_of_attempts({5}));
  EXPECT_NE(report.left[0].why.find("delete it by hand once no process"), std::string::npos);
  EXPECT_EQ(disk_.list_all(), before);
}

TEST_F(DebrisOnDisk, WhatIsPutThereMeanwhileStays) {
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  for (const std::uint64_t step : {3U, 5U, 6U}) {
    disk_.plant(attempt_dir_name({step, step}) + "/mine.txt", "precious");
  }
  const auto before = disk_.list_all();
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  EXPECT_FALSE(report.failed);
  EXPECT_EQ(names_of(report.left), names_of_attempts({6, 3, 5}));
  EXPECT_EQ(disk_.list_all(), before) << "not even aborted";
}

TEST_F(DebrisOnDisk, WhatCantBeListedAgainStays) {
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  disk_.fail_read_at(disk_.read_count(), EIO);
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  EXPECT_TRUE(report.failed);
  EXPECT_EQ(names_of(report.left), names_of_attempts({6}));
  EXPECT_EQ(names_of(report.deleted), names_of_attempts({3, 5}));
}

TEST_F(DebrisOnDisk, WhatAnotherHasAbortedAndBegunToTakeIsFinished) {
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  ASSERT_TRUE(abort_fenced(disk_, run_id_, kFenced).has_value());
  const std::string part = join_name(attempt_dir_name(kFenced), sealed_file_name({}));
  ASSERT_TRUE(disk_.remove_file(part).has_value());
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  EXPECT_FALSE(report.failed);
  EXPECT_EQ(names_of(report.deleted), names_of_attempts({6, 3, 5}));
}

// A process that claims the run writes "aborted" while this one is about to remove the directory.
TEST_F(DebrisOnDisk, WhereAFileHasComeMeanwhileAnotherIsAtWork) {
  ASSERT_TRUE(fail_points::arm("remove.files_synced=error:ENOTEMPTY@1"));
  const DebrisReport report = sweep(disk_);
  fail_points::disarm();
  EXPECT_FALSE(report.failed);
  ASSERT_EQ(report.left.size(), 1U);
  EXPECT_EQ(report.left[0].why, "another collector is at work: run it again");
  EXPECT_FALSE(sweep(disk_).failed);
  EXPECT_EQ(steps_left(disk_), (std::vector<std::uint64_t>{4, 7}));
  expect_sound(disk_);
}

TEST_F(DebrisOnDisk, AFileThatWentWithItsCheckpointIsGone) {
  const std::string file = attempt_dir_name({4, 4}) + "/manifest.0123456789abcdef.tmp";
  disk_.plant(file, "torn");
  const auto listing = read_run(disk_);
  const std::vector<Oddity> found = old_temporaries(disk_, *listing);
  ASSERT_TRUE(remove_attempt(disk_, {4, 4}).has_value());
  const DebrisReport report = delete_debris(disk_, *listing, found);
  EXPECT_FALSE(report.failed);
  ASSERT_EQ(report.deleted.size(), 1U);
  EXPECT_EQ(report.deleted[0].name, file);
}

// The survey is older than the other processes' actions.
TEST_F(DebrisOnDisk, WhatWasCommittedMeanwhileStays) {
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  ASSERT_TRUE(found.has_value());
  Manifest committed{.run_id = run_id_};
  committed.point = {.generation = 1, .step = 5, .save_index = 5, .attempt_id = 5};
  const std::string manifest = join_name(attempt_dir_name(kFenced), kManifestFile);
  disk_.plant(manifest, encode_manifest(committed));
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  ASSERT_EQ(report.left.size(), 1U);
  EXPECT_EQ(report.left[0].name, attempt_dir_name(kFenced));
  EXPECT_FALSE(report.failed);
  EXPECT_TRUE(disk_.contents(manifest).has_value());
}

TEST_F(DebrisOnDisk, WhatAnotherCollectorTookIsGone) {
  const auto listing = read_run(disk_);
  const auto found = survey_run(disk_, *listing);
  ASSERT_FALSE(sweep(disk_).failed);
  const DebrisReport report = delete_debris(disk_, *listing, *found);
  EXPECT_FALSE(report.failed);
  EXPECT_TRUE(report.left.empty());
  EXPECT_EQ(steps_left(disk_), (std::vector<std::uint64_t>{4, 7}));
  expect_sound(disk_);
}

// A survey that is wrong, or of another moment, can't make delete_debris abort an attempt in
// flight.
TEST_F(DebrisOnDisk, NobodysWordMakesAnOpenAttemptFenced) {
  const auto listing = read_run(disk_);
  const Oddity wrong{
      .kind = OddityKind::kFenced, .name = attempt_dir_name({7, 7}), .attempt = AttemptName{7, 7}};
  const DebrisReport report = delete_debris(disk_, *listing, std::span(&wrong, 1));
  EXPECT_TRUE(report.failed);
  EXPECT_TRUE(report.deleted.empty());
  expect_sound(disk_);
}

// Its process died between the rename and the last sync: a power cut would bring the older step
// into play, if that is still there.
TEST_F(DebrisOnDisk, TheNewestStepIsDurableBeforeAnythingGoes) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(save_attempt(*counted, identity(8)).has_value());
  disk_.ignore_sync(disk_.operation_count() + counted->operation_count() - 1);
  save(8);
  ASSERT_GT(disk_.pending_count(), 0U);
  ASSERT_FALSE(sweep(disk_).failed);
  for (const auto& image : disk_.crash_images(kImagesMax, 1)) {
    EXPECT_EQ(newest_first(*read_run(*image)).size(), 2U) << image->label();
  }
}

// The name that a record has while it is written: what is there when its writer dies at the rename.
std::string name_at_death(SimDisk& disk, const std::function<Status(Vfs&)>& write) {
  const auto counted = disk.clone();
  EXPECT_TRUE(write(*counted).has_value());
  for (const SimOperation& operation : counted->operations()) {
    if (operation.kind == SimOperationKind::kRename) return operation.name;
  }
  return "(no rename)";
}

TEST_F(DebrisOnDisk, TemporaryNamesAreKnownForWhatTheyAre) {
  const auto kind = [](const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return kind_in_run({.name = path});
    return kind_in_attempt({.name = path.substr(slash + 1)});
  };
  const std::string directory = attempt_dir_name({7, 7});
  const auto place = [](std::string_view where, std::string_view name) {
    return [=](Vfs& vfs) {
      return place_record(vfs, {.directory = where, .name = name, .text = "{}"}, {});
    };
  };
  EXPECT_EQ(kind(name_at_death(disk_, place("", generation_file_name(9)))), NameKind::kTemporary);
  EXPECT_EQ(kind(name_at_death(disk_, place(directory, kManifestFile))), NameKind::kTemporary);
  EXPECT_EQ(kind(name_at_death(disk_,
                               [&](Vfs& vfs) {
                                 return remember_scrubs(vfs, {.run_id = run_id_, .entries = {}});
                               })),
            NameKind::kTemporary);
  ASSERT_TRUE(disk_.remove_file(kRunFile).has_value());
  EXPECT_EQ(kind(name_at_death(disk_, place("", kRunFile))), NameKind::kTemporary);
}

TEST_F(DebrisOnDisk, AnAttemptOfAnotherRunIsNotOursToAbort) {
  const Identity foreign = make_identity("0123456789abcdef", {1, 9, 9, 9});
  ASSERT_TRUE(begin_attempt(disk_, {9, 9}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, foreign).has_value());
  ASSERT_FALSE(sweep(disk_).failed);
  EXPECT_EQ(steps_left(disk_), (std::vector<std::uint64_t>{4, 7, 9}));
}

TEST_F(DebrisOnDisk, OldTemporaryFilesGoForGood) {
  const std::string inside = attempt_dir_name({4, 4}) + "/manifest.0123456789abcdef.tmp";
  const std::string outside = "generation.0123456789abcdef.tmp";
  disk_.plant(inside, "torn");
  disk_.plant(outside, "torn");
  disk_.plant(attempt_dir_name({7, 7}) + "/manifest.0123456789abcdef.tmp", "in flight");
  const auto listing = read_run(disk_);
  const std::vector<Oddity> found = old_temporaries(disk_, *listing);
  ASSERT_EQ(found.size(), 3U);
  const DebrisReport report = delete_debris(disk_, *listing, found);
  EXPECT_EQ(report.deleted.size(), 2U);
  EXPECT_FALSE(report.failed);
  ASSERT_EQ(report.left.size(), 1U);
  EXPECT_EQ(report.left[0].why, "its attempt is not committed: it may be in use");
  for (const auto& image : disk_.crash_images(kImagesMax, 1)) {
    EXPECT_FALSE(image->contents(inside).has_value()) << image->label();
    EXPECT_FALSE(image->contents(outside).has_value()) << image->label();
    EXPECT_TRUE(image->contents(attempt_dir_name({7, 7}) + "/manifest.0123456789abcdef.tmp"));
  }
  EXPECT_FALSE(delete_debris(disk_, *listing, found).failed) << "they are gone: that is success";
}

TEST_F(DebrisOnDisk, WithoutAClockTemporaryFilesStay) {
  const std::string name = "generation.0123456789abcdef.tmp";
  disk_.plant(name, "torn");
  const DebrisReport report = sweep(disk_);
  EXPECT_FALSE(report.failed);
  ASSERT_EQ(report.left.size(), 1U);
  EXPECT_EQ(report.left[0].name, name);
  EXPECT_TRUE(disk_.contents(name).has_value());
}

}  // namespace
}  // namespace deepfreeze
