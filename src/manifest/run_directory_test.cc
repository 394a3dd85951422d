#include "manifest/run_directory.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <string>
#include <utility>

#include "base/log.h"
#include "crash/attempt_maker.h"
#include "format/sealed_fixture.h"
#include "manifest/claims.h"
#include "manifest/retention.h"
#include "manifest/run_file.h"
#include "storage/os_error.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

const AttemptName kFirst{1, 0x11};
const AttemptName kSecond{2, 0x22};

class RunDirectory : public testing::Test {
 protected:
  RunDirectory() {
    set_log_sink([this](std::string_view line) { warnings_.emplace_back(line); });
  }
  ~RunDirectory() override { set_log_sink({}); }

  void make_run() {
    const auto run = create_or_open_run(disk_, ParentPoint{"runs/base", 7});
    ASSERT_TRUE(run.has_value()) << run.error().message();
    run_id_ = run->run_id;
    ASSERT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
    save(disk_, kFirst, 1);
    save(disk_, kSecond, 2);
  }
  void save(Vfs& vfs, const AttemptName& name, std::uint64_t save_index,
            std::uint64_t generation = 1) {
    const auto saved = save_attempt(
        vfs, make_identity(run_id_, {generation, name.step, save_index, name.attempt_id}));
    ASSERT_TRUE(saved.has_value()) << saved.error().message();
  }
  std::string manifest_path(const AttemptName& name) const {
    return attempt_dir_name(name) + "/manifest.json";
  }

  SimDisk disk_;
  std::string run_id_;
  std::vector<std::string> warnings_;
};

TEST_F(RunDirectory, ListsAttemptsAndClaimsAndIgnoresForeignNames) {
  make_run();
  disk_.plant("notes.txt", "mine");
  disk_.plant("generation.0123456789abcdef.tmp", "debris");
  disk_.plant("step-zzz/file", "not ours");
  ASSERT_TRUE(begin_attempt(disk_, {3, 0x33}).has_value());
  const auto listing = read_run(disk_);
  ASSERT_TRUE(listing.has_value()) << listing.error().message();
  EXPECT_EQ(listing->run.run_id, run_id_);
  EXPECT_FALSE(listing->run_rebuilt);
  ASSERT_EQ(listing->attempts.size(), 3U);
  EXPECT_TRUE(listing->attempts[0].committed());
  EXPECT_TRUE(listing->attempts[1].committed());
  EXPECT_TRUE(listing->attempts[2].undecided());
  ASSERT_EQ(listing->claims.size(), 1U);
  EXPECT_EQ(listing->claims[0].record->generation, 1U);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(RunDirectory, SaysThatADirectoryIsNoRun) {
  disk_.plant("notes.txt", "mine");
  const auto listing = read_run(disk_);
  ASSERT_FALSE(listing.has_value());
  EXPECT_EQ(listing.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(listing.error().message().find("not a DeepFreeze run directory"), std::string::npos);
}

TEST_F(RunDirectory, CreatesARunBesideOtherFilesAndAdoptsItLater) {
  disk_.plant("notes.txt", "mine");
  const auto made = create_or_open_run(disk_, ParentPoint{"runs/base", 7});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made->parent, (ParentPoint{"runs/base", 7}));
  const auto opened = create_or_open_run(disk_, {});
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(*opened, *made);
  EXPECT_EQ(disk_.contents("notes.txt"), "mine");
}

TEST_F(RunDirectory, EveryFlippedBitOfAManifestIsAFault) {
  make_run();
  const std::size_t size = disk_.contents(manifest_path(kFirst))->size();
  for (std::size_t byte = 0; byte < size; ++byte) {
    ASSERT_TRUE(disk_.flip_bit(manifest_path(kFirst), byte * 8 + byte % 8));
    const auto listing = read_run(disk_);
    ASSERT_TRUE(listing.has_value()) << byte;
    EXPECT_TRUE(listing->attempts[0].fault.has_value()) << "byte " << byte;
    EXPECT_FALSE(listing->attempts[0].committed());
    EXPECT_TRUE(listing->attempts[1].committed());
    ASSERT_TRUE(disk_.flip_bit(manifest_path(kFirst), byte * 8 + byte % 8));
  }
  EXPECT_TRUE(read_run(disk_)->attempts[0].committed());
}

TEST_F(RunDirectory, AManifestOfAnotherAttemptOrRunIsAFault) {
  make_run();
  const std::string foreign = *disk_.contents(manifest_path(kSecond));
  disk_.plant(manifest_path({5, 0x22}), foreign);
  auto manifest = *decode_manifest(foreign);
  manifest.run_id = "0123456789abcdef";
  disk_.plant(manifest_path(kSecond), encode_manifest(manifest));
  const auto listing = read_run(disk_);
  ASSERT_TRUE(listing.has_value());
  ASSERT_EQ(listing->attempts.size(), 3U);
  EXPECT_TRUE(listing->attempts[0].committed());
  ASSERT_TRUE(listing->attempts[1].fault.has_value());
  EXPECT_NE(listing->attempts[1].fault->message().find("of run 0123456789abcdef"),
            std::string::npos);
  ASSERT_TRUE(listing->attempts[2].fault.has_value());
  EXPECT_NE(listing->attempts[2].fault->message().find("it is of attempt step-"),
            std::string::npos);
}

TEST_F(RunDirectory, AManifestOfAnotherAttemptAtTheSameStepIsAFault) {
  make_run();
  const AttemptName other{kFirst.step, kFirst.attempt_id + 1};
  disk_.plant(manifest_path(other), *disk_.contents(manifest_path(kFirst)));
  const auto listing = read_run(disk_);
  ASSERT_TRUE(listing.has_value());
  const auto found = std::ranges::find(listing->attempts, other, &AttemptState::name);
  ASSERT_NE(found, listing->attempts.end());
  EXPECT_TRUE(found->fault.has_value());
}

TEST_F(RunDirectory, AnErrorWhileARunIsMadeSaysWhatItWas) {
  disk_.fail_at(0, ENOSPC);
  const auto made = create_or_open_run(disk_, {});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), ErrorCode::kNoSpace);
  disk_.plant(kRunFile, "{torn");
  const auto read = read_run_file(disk_);
  ASSERT_FALSE(read.has_value());
  EXPECT_TRUE(read.error().message().starts_with("sim:/deepfreeze.json: "));
}

TEST_F(RunDirectory, ABadClaimIsStillAClaim) {
  make_run();
  disk_.plant(generation_file_name(4), "torn");
  disk_.plant(generation_file_name(5), *disk_.contents(generation_file_name(1)));
  const auto listing = read_run(disk_);
  ASSERT_TRUE(listing.has_value());
  ASSERT_EQ(listing->claims.size(), 3U);
  EXPECT_EQ(listing->claims[1].generation, 4U);
  EXPECT_FALSE(listing->claims[1].record.has_value());
  EXPECT_EQ(listing->claims[2].generation, 5U);
  EXPECT_FALSE(listing->claims[2].record.has_value());
}

// Fails to open one name, as a process does that has no descriptor left.
class RefusingVfs final : public PassingVfs {
 public:
  RefusingVfs(Vfs& disk, std::string_view name) : PassingVfs(disk), name_(name) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (name == name_) return os_fail("open", name, EMFILE);
    return PassingVfs::open_read(name, access);
  }

 private:
  std::string name_;
};

TEST_F(RunDirectory, AClaimThatMayNotBeOpenedHasNothingOlderDeleted) {
  make_run();
  ASSERT_TRUE(claim_generation(disk_, run_id_, read_run(disk_)->attempts[0].manifest->point));
  save(disk_, {2, 0x33}, 3, 2);
  RefusingVfs refusing(disk_, generation_file_name(2));
  const Keep keep{.last = 1, .every = {}, .best = {}};
  EXPECT_TRUE(collect_garbage(refusing, keep)->removed.empty());
  EXPECT_EQ(collect_garbage(disk_, keep)->removed.size(), 2U);
}

TEST_F(RunDirectory, ARunFileThatMayNotBeOpenedIsNotReplaced) {
  make_run();
  RefusingVfs refusing(disk_, kRunFile);
  const auto opened = create_or_open_run(refusing, {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().os_errno(), EMFILE);
  EXPECT_TRUE(read_run(disk_)->run.parent);
}

TEST_F(RunDirectory, ARunFileThatIsRebuiltFromClaimsHasTheParentThatItsOpenerNames) {
  const auto run = create_or_open_run(disk_, ParentPoint{"runs/base", 7});
  ASSERT_TRUE(claim_generation(disk_, run->run_id, {}));
  ASSERT_TRUE(disk_.flip_bit(kRunFile, 50));
  const auto rebuilt = create_or_open_run(disk_, ParentPoint{"runs/base", 7});
  ASSERT_TRUE(rebuilt) << rebuilt.error().message();
  EXPECT_EQ(rebuilt->run_id, run->run_id);
  EXPECT_EQ(rebuilt->parent, run->parent);
}

TEST_F(RunDirectory, ARunFileThatIsRebuiltFromManifestsHasTheParentThatTheyName) {
  const auto run = create_or_open_run(disk_, {});
  run_id_ = run->run_id;
  ASSERT_TRUE(claim_generation(disk_, run_id_, {}));
  save(disk_, kFirst, 1);
  ASSERT_TRUE(disk_.flip_bit(kRunFile, 50));
  EXPECT_FALSE(create_or_open_run(disk_, ParentPoint{"runs/base", 7})->parent);
}

TEST_F(RunDirectory, RebuildsALostRunFileFromTheManifests) {
  make_run();
  ASSERT_TRUE(disk_.remove_file(kRunFile).has_value());
  const auto listing = read_run(disk_);
  ASSERT_TRUE(listing.has_value()) << listing.error().message();
  EXPECT_EQ(listing->run.run_id, run_id_);
  EXPECT_TRUE(listing->run_rebuilt);
  EXPECT_EQ(warnings_.size(), 1U);
  const auto opened = create_or_open_run(disk_, {});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ(opened->run_id, run_id_);
  EXPECT_FALSE(read_run(disk_)->run_rebuilt);
}

TEST_F(RunDirectory, RebuildsFromAClaimWhereNothingWasSaved) {
  const auto run = create_or_open_run(disk_, {});
  ASSERT_TRUE(claim_generation(disk_, run->run_id, {}).has_value());
  ASSERT_TRUE(disk_.remove_file(kRunFile).has_value());
  EXPECT_EQ(read_run(disk_)->run.run_id, run->run_id);
}

TEST_F(RunDirectory, RepairsABadRunFileAndKeepsTheBadOne) {
  make_run();
  disk_.plant(kRunFile, "{torn");
  ASSERT_TRUE(create_or_open_run(disk_, {}).has_value());
  EXPECT_EQ(read_run(disk_)->run.run_id, run_id_);
  bool kept = false;
  for (const std::string& name : disk_.list_all()) {
    if (name.starts_with("deepfreeze.bad-")) kept = disk_.contents(name) == "{torn";
  }
  EXPECT_TRUE(kept);
}

TEST_F(RunDirectory, TheRunIdOfMostManifestsWins) {
  make_run();
  save(disk_, {3, 0x33}, 3);
  auto manifest = *decode_manifest(*disk_.contents(manifest_path(kFirst)));
  manifest.run_id = "0000000000000000";
  disk_.plant(manifest_path(kFirst), encode_manifest(manifest));
  disk_.plant(kRunFile, "");
  const auto listing = read_run(disk_);
  ASSERT_TRUE(listing.has_value());
  EXPECT_EQ(listing->run.run_id, run_id_);
  EXPECT_TRUE(listing->attempts[0].fault.has_value());
}

TEST_F(RunDirectory, ABadRunFileAloneIsCorruptForReadersAndStartsAnewForWriters) {
  disk_.plant(kRunFile, "{torn");
  const auto listing = read_run(disk_);
  ASSERT_FALSE(listing.has_value());
  EXPECT_EQ(listing.error().code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(create_or_open_run(disk_, {}).has_value());
  EXPECT_TRUE(read_run(disk_).has_value());
}

TEST_F(RunDirectory, WhereNoRecordTellsWhichRunThisIsItIsCorrupt) {
  make_run();
  ASSERT_TRUE(disk_.remove_file(kRunFile));
  for (const AttemptName& name : {kFirst, kSecond}) disk_.plant(manifest_path(name), "{torn");
  disk_.plant(generation_file_name(1), "{torn");
  const auto listing = read_run(disk_);
  ASSERT_FALSE(listing);
  EXPECT_EQ(listing.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(listing.error().message().find("no other record tells which run this is"),
            std::string::npos)
      << listing.error().message();
}

// A disk on which another process acts once a directory has been listed.
class BusyDisk final : public PassingVfs {
 public:
  BusyDisk(SimDisk& disk, std::string listed, std::function<void()> once_listed)
      : PassingVfs(disk), listed_(std::move(listed)), once_listed_(std::move(once_listed)) {}

  Result<std::vector<DirEntry>> list(std::string_view name) override {
    auto entries = disk_.list(name);
    if (name == listed_ && once_listed_) std::exchange(once_listed_, {})();
    return entries;
  }

 private:
  std::string listed_;
  std::function<void()> once_listed_;
};

TEST_F(RunDirectory, ANewerStepIsSeenWhereAnOlderOneIsDeletedMeanwhile) {
  make_run();
  BusyDisk busy(disk_, "", [this] {
    save(disk_, {3, 0x33}, 3);
    EXPECT_TRUE(remove_attempt(disk_, kFirst).has_value());
    EXPECT_TRUE(remove_attempt(disk_, kSecond).has_value());
  });
  const auto listing = read_run(busy);
  ASSERT_TRUE(listing.has_value());
  ASSERT_EQ(listing->attempts.size(), 1U);
  EXPECT_EQ(listing->attempts[0].name.step, 3U);
}

TEST_F(RunDirectory, AManifestThatGoesOnceItsDirectoryWasListedIsNoFault) {
  make_run();
  BusyDisk busy(disk_, attempt_dir_name(kFirst),
                [this] { EXPECT_TRUE(remove_attempt(disk_, kFirst)); });
  const auto listing = read_run(busy);
  ASSERT_TRUE(listing);
  ASSERT_EQ(listing->attempts.size(), 1U);
  EXPECT_EQ(listing->attempts[0].name, kSecond);
  EXPECT_FALSE(listing->attempts[0].fault);
}

// Seals the body anew after `from` was replaced by `to`.
std::string with_body(const std::string& sealed, std::string_view from, std::string_view to) {
  std::string body = sealed;
  const std::size_t at = body.find(from);
  EXPECT_NE(at, std::string::npos) << sealed;
  body.replace(at, from.size(), to);
  auto json = nlohmann::ordered_json::parse(body, nullptr, false);
  json.erase("crc32c");
  return seal_json(json);
}

TEST_F(RunDirectory, IsListedAnewWhileWhatWasListedIsGoneButNotForEver) {
  int lists = 0;
  const auto read = [&](int gone_times) {
    return list_anew_while_gone([&, gone_times]() -> Result<int> {
      if (++lists <= gone_times) return fail(ErrorCode::kGone, "it was deleted");
      return lists;
    });
  };
  EXPECT_EQ(read(3).value(), 4);
  lists = 0;
  EXPECT_EQ(read(kListsMax).error().code(), ErrorCode::kGone);
  EXPECT_EQ(lists, kListsMax);
  lists = 0;
  const auto corrupt = list_anew_while_gone([&]() -> Status {
    ++lists;
    return fail(ErrorCode::kCorrupt, "it is torn");
  });
  EXPECT_FALSE(corrupt);
  EXPECT_EQ(lists, 1);
}

// A store that is far away: each pass asks it once for all names.
class FarVfs final : public PassingVfs {
 public:
  explicit FarVfs(SimDisk& disk) : PassingVfs(disk), disk_(disk) {}
  Result<std::unique_ptr<Vfs>> look() override {
    ++looks;
    return std::make_unique<PassingVfs>(disk_);
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    ++lists;
    return PassingVfs::list(name);
  }
  int looks = 0;
  int lists = 0;

 private:
  SimDisk& disk_;
};

TEST_F(RunDirectory, LooksOnceAtAStoreThatIsFarAway) {
  make_run();
  FarVfs far(disk_);
  const auto listing = read_run(far);
  ASSERT_TRUE(listing);
  EXPECT_EQ(listing->attempts.size(), 2U);
  EXPECT_EQ(listing->claims.size(), 1U);
  EXPECT_EQ(far.looks, 1);
  EXPECT_EQ(far.lists, 0);
}

TEST_F(RunDirectory, LooksAgainIfACheckpointWasDeletedMeanwhile) {
  make_run();
  ASSERT_TRUE(disk_.rename_no_replace(manifest_path(kFirst),
                                      attempt_dir_name(kFirst) + "/manifest.deleted.json"));
  FarVfs far(disk_);
  const auto listing = read_run(far);
  ASSERT_TRUE(listing);
  EXPECT_EQ(listing->half_deleted.size(), 1U);
  EXPECT_EQ(far.looks, 2);
}

TEST_F(RunDirectory, RefusesARunThatANewerVersionHasWrittenTo) {
  make_run();
  const std::string manifest = *disk_.contents(manifest_path(kFirst));
  disk_.plant(manifest_path(kFirst),
              with_body(manifest, R"("format_version":1)", R"("format_version":3)"));
  const auto listing = read_run(disk_);
  ASSERT_FALSE(listing.has_value());
  EXPECT_EQ(listing.error().code(), ErrorCode::kUnsupported);
}

TEST_F(RunDirectory, RefusesARunThatANewerVersionHasClaimed) {
  make_run();
  const std::string claim = *disk_.contents(generation_file_name(1));
  disk_.plant(generation_file_name(1),
              with_body(claim, R"("format_version":1)", R"("format_version":3)"));
  const auto listing = read_run(disk_);
  ASSERT_FALSE(listing.has_value());
  EXPECT_EQ(listing.error().code(), ErrorCode::kUnsupported);
}

TEST_F(RunDirectory, RefusesARunInADirectoryThatANewerVersionHasMadeANodes) {
  make_run();
  const std::string node = encode_node({.node = 7, .host = "h"});
  disk_.plant(kNodeFile, with_body(node, R"("format_version":1)", R"("format_version":3)"));
  const auto listing = read_run(disk_);
  ASSERT_FALSE(listing.has_value());
  EXPECT_EQ(listing.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace deepfreeze
