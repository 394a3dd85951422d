#include "manifest/run_survey.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/log.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/two_nodes.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

// A run of two generations with a committed step.
class RunSurvey : public testing::Test {
 protected:
  RunSurvey() : run_id_(create_or_open_run(disk_, {})->run_id) {
    set_log_sink([](std::string_view) {});
    EXPECT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
    EXPECT_TRUE(save_attempt(disk_, make_identity(run_id_, {1, 3, 3, 3})).has_value());
    EXPECT_TRUE(claim_generation(disk_, run_id_, Point{1, 3, 3, 3}).has_value());
  }
  ~RunSurvey() override { set_log_sink({}); }

  static std::set<OddityKind> kinds_of(const std::vector<Oddity>& found) {
    std::set<OddityKind> kinds;
    for (const Oddity& oddity : found) kinds.insert(oddity.kind);
    return kinds;
  }
  // The findings if two reads fail, for instance the listing's and the survey's own.
  std::set<OddityKind> found_where_reads_fail(std::size_t first, std::size_t second) const {
    const auto disk = disk_.clone();
    disk->fail_read_at(first, EACCES);
    disk->fail_read_at(second, EACCES);
    const auto listing = read_run(*disk);
    const auto found = listing ? survey_run(*disk, *listing) : std::unexpected(listing.error());
    return found ? kinds_of(*found) : std::set<OddityKind>{};
  }

  SimDisk disk_;
  std::string run_id_;
};

TEST_F(RunSurvey, WhatCantBeReadIsNotCalledDamaged) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(survey_run(*counted, *read_run(*counted)).has_value());
  const std::size_t reads = counted->read_count();
  std::set<OddityKind> all;
  for (std::size_t first = 0; first < reads; ++first) {
    for (std::size_t second = first + 1; second < reads + 2; ++second) {
      all.merge(found_where_reads_fail(first, second));
    }
  }
  EXPECT_TRUE(all.contains(OddityKind::kRunFileUnread));
  EXPECT_TRUE(all.contains(OddityKind::kManifestUnread));
  EXPECT_TRUE(all.contains(OddityKind::kClaimUnread));
  EXPECT_FALSE(all.contains(OddityKind::kRunFileDamaged));
  EXPECT_FALSE(all.contains(OddityKind::kManifestDamaged));
  EXPECT_FALSE(all.contains(OddityKind::kClaimDamaged));
}

TEST_F(RunSurvey, ARunFileThatIsNoFileIsUnreadAndNotDamaged) {
  ASSERT_TRUE(disk_.remove_file(kRunFile).has_value());
  ASSERT_TRUE(disk_.make_dir(kRunFile).has_value());
  const auto found = survey_run(disk_, *read_run(disk_));
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(kinds_of(*found).contains(OddityKind::kRunFileUnread));
}

TEST_F(RunSurvey, NamesThatCantBeListedAreAnError) {
  const Manifest manifest = *read_run(disk_)->attempts[0].manifest;
  EXPECT_TRUE(unlisted_names(disk_, manifest).has_value());
  disk_.fail_read_at(disk_.read_count(), EIO);
  EXPECT_EQ(code_of(unlisted_names(disk_, manifest)), ErrorCode::kIo);
}

TEST_F(RunSurvey, DamageIsCalledDamage) {
  ASSERT_TRUE(disk_.flip_bit(kRunFile, 300));
  ASSERT_TRUE(disk_.flip_bit(generation_file_name(2), 300));
  ASSERT_TRUE(disk_.flip_bit(attempt_dir_name({3, 3}) + "/manifest.json", 300));
  EXPECT_EQ(kinds_of(survey_run(disk_, *read_run(disk_)).value()),
            (std::set{OddityKind::kRunFileDamaged, OddityKind::kClaimDamaged,
                      OddityKind::kManifestDamaged}));
}

TEST_F(RunSurvey, AClaimOfAnotherRunIsDamaged) {
  const std::string name = generation_file_name(2);
  disk_.plant(name, encode_generation({.run_id = "0123456789abcdef", .generation = 2}));
  EXPECT_EQ(kinds_of(survey_run(disk_, *read_run(disk_)).value()),
            std::set{OddityKind::kClaimDamaged});
}

TEST_F(RunSurvey, ANodesRecordsAreToldByTheirState) {
  TwoNodes nodes;
  nodes.claim();
  nodes.seal(3, 1);
  nodes.other.plant("generation-00000001.void-0123456789abcdef.json", "lost");
  const auto found = [&](SimDisk& disk) {
    return kinds_of(survey_run(disk, *read_run(disk)).value());
  };
  using enum OddityKind;
  EXPECT_EQ(found(nodes.other), (std::set<OddityKind>{kClaimVoid, kInDoubt}));
  nodes.claim();
  EXPECT_EQ(found(nodes.other), (std::set<OddityKind>{kClaimVoid, kInDoubt})) << "and fenced";
  nodes.other.plant(kNodeFile, "damaged");
  EXPECT_EQ(found(nodes.other), (std::set<OddityKind>{kClaimVoid, kInDoubt, kNodeDamaged}));
  ASSERT_TRUE(nodes.other.remove_file(kNodeFile));
  ASSERT_TRUE(nodes.other.make_dir(kNodeFile));
  EXPECT_TRUE(found(nodes.other).contains(kNodeUnread));
}

}  // namespace
}  // namespace deepfreeze
