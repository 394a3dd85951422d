#include "manifest/given_tags.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "base/fail_point.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/name_kind.h"
#include "manifest/retention.h"
#include "manifest/run_survey.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze::given_tags_test {
namespace {

constexpr std::size_t kImagesMax = 2000;

class GivenTagsOnDisk : public testing::Test {
 protected:
  GivenTagsOnDisk() {
    run_id_ = create_or_open_run(disk_, {})->run_id;
    EXPECT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
    for (std::uint64_t step = 1; step <= 4; ++step) manifests_.push_back(save(step));
  }
  ~GivenTagsOnDisk() override { fail_points::disarm(); }

  Manifest save(std::uint64_t step) {
    return save_attempt(
               disk_, make_identity(
                          run_id_,
                          {.generation = 1, .step = step, .save_index = step, .attempt_id = step}))
        .value();
  }
  static std::optional<GivenTags> given(Vfs& vfs, std::uint64_t step) {
    const auto listing = read_run(vfs);
    for (const AttemptState& attempt : listing->attempts) {
      if (attempt.name.step == step) return attempt.given;
    }
    return std::nullopt;
  }
  static Tags tags(Vfs& vfs, std::uint64_t step) {
    const auto found = given(vfs, step);
    return found ? found->tags : Tags{{"none", "was ever given"}};
  }
  Result<GivenTags> set(Vfs& vfs, const Tags& tags, std::vector<std::string> remove = {}) {
    return change_tags(vfs, manifests_[1], {.set = tags, .remove = std::move(remove)});
  }
  [[nodiscard]] std::string path(std::uint64_t number) const {
    return join_name(attempt_dir_name({2, 2}), tag_file_name(number));
  }
  // As `held` of a collection: in the moment behind its listing.
  static std::function<std::vector<AttemptName>(const RunListing&)> meanwhile(
      std::function<void()> act) {
    return [act = std::move(act)](const RunListing&) {
      act();
      return std::vector<AttemptName>();
    };
  }
  static std::vector<std::uint64_t> steps(Vfs& vfs) {
    std::vector<std::uint64_t> found;
    const auto listing = read_run(vfs);
    for (const AttemptState& attempt : listing->attempts) found.push_back(attempt.name.step);
    return found;
  }

  SimDisk disk_;
  std::string run_id_;
  std::vector<Manifest> manifests_;
};

TEST_F(GivenTagsOnDisk, AreSetChangedAndRemoved) {
  EXPECT_FALSE(given(disk_, 2));
  ASSERT_TRUE(set(disk_, {{"lr", "3e-4"}, {"who", "me"}}));
  EXPECT_EQ(tags(disk_, 2), (Tags{{"lr", "3e-4"}, {"who", "me"}}));
  ASSERT_TRUE(set(disk_, {{"lr", "1e-4"}}, {"who"}));
  EXPECT_EQ(tags(disk_, 2), (Tags{{"lr", "1e-4"}}));
  EXPECT_EQ(code_of(set(disk_, {}, {"who"})), ErrorCode::kNotFound);
  ASSERT_TRUE(set(disk_, {}, {"lr"}));
  EXPECT_EQ(tags(disk_, 2), Tags());
  EXPECT_FALSE(given(disk_, 1) || given(disk_, 3)) << "the others have none";
}

TEST_F(GivenTagsOnDisk, TheManifestIsNotTouchedAndOneRecordRemains) {
  const std::string manifest = join_name(attempt_dir_name({2, 2}), kManifestFile);
  const auto before = disk_.contents(manifest);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(set(disk_, {{"i", std::to_string(i)}}));
  EXPECT_EQ(disk_.contents(manifest), before);
  EXPECT_FALSE(disk_.contents(path(4)));
  EXPECT_TRUE(disk_.contents(path(5)));
  ASSERT_TRUE(set(disk_, {{"i", "4"}}));
  EXPECT_FALSE(disk_.contents(path(6))) << "nothing has changed";
}

TEST_F(GivenTagsOnDisk, ThoseThatFitInNoRecordAreRefusedAndTheOthersStay) {
  Tags most{{"a", "b"}};
  ASSERT_TRUE(set(disk_, most));
  for (int i = 0; i < 60; ++i) most[std::to_string(i)] = std::string(kTagValueBytesMax, '\x01');
  const auto refused = set(disk_, most);
  EXPECT_EQ(code_of(refused), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("1048576 are allowed"), std::string::npos);
  EXPECT_EQ(tags(disk_, 2), (Tags{{"a", "b"}}));
  for (int i = 40; i < 60; ++i) most.erase(std::to_string(i));
  ASSERT_TRUE(set(disk_, most));
  EXPECT_EQ(tags(disk_, 2), most);
}

TEST_F(GivenTagsOnDisk, ARecordOfTheHighestNumberIsNotFollowedByTheLowest) {
  constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();
  ASSERT_TRUE(write_new_file(
      disk_, path(kHighest),
      encode_tags(
          {.run_id = run_id_, .attempt = {2, 2}, .number = kHighest, .tags = {{"a", "b"}}})));
  EXPECT_EQ(code_of(set(disk_, {{"c", "d"}})), ErrorCode::kCorrupt);
  EXPECT_EQ(tags(disk_, 2), (Tags{{"a", "b"}}));
  EXPECT_FALSE(disk_.contents(path(0)));
}

TEST_F(GivenTagsOnDisk, TheyLieOverThoseOfTheSave) {
  AttemptState attempt{.name = {1, 1}, .manifest = Manifest{}, .fault = {}};
  attempt.manifest->annotations.tags = {{"lr", "1"}, {"host", "a"}};
  EXPECT_EQ(tags_of(attempt), (Tags{{"lr", "1"}, {"host", "a"}}));
  EXPECT_FALSE(is_tagged(attempt)) << "every save may have tags";
  attempt.given = GivenTags{.number = 1, .tags = {{"lr", "2"}}, .fault = {}};
  EXPECT_EQ(tags_of(attempt), (Tags{{"lr", "2"}, {"host", "a"}}));
  EXPECT_TRUE(is_tagged(attempt));
}

TEST_F(GivenTagsOnDisk, ACollectorKeepsTheCheckpointUntilTheyAreRemoved) {
  ASSERT_TRUE(set(disk_, {{"keep", "me"}}));
  ASSERT_TRUE(collect_garbage(disk_, {.last = 1}));
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{2, 4}));
  ASSERT_TRUE(set(disk_, {}, {"keep"}));
  ASSERT_TRUE(collect_garbage(disk_, {.last = 1}));
  EXPECT_EQ(steps(disk_), std::vector<std::uint64_t>{4});
  EXPECT_EQ(code_of(set(disk_, {{"late", "1"}})), ErrorCode::kNotFound);
}

// A tag that is given after the collector has listed the run, and before it deletes.
TEST_F(GivenTagsOnDisk, ATagThatComesWhileACollectorIsAtWorkSavesTheCheckpoint) {
  const auto report = collect_garbage(disk_, {.last = 1}, {.held = [&](const RunListing&) {
                                        EXPECT_TRUE(set(disk_, {{"keep", "me"}}));
                                        return std::vector<AttemptName>();
                                      }});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->removed, (std::vector<AttemptName>{{1, 1}, {3, 3}}));
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{2, 4}));
}

TEST_F(GivenTagsOnDisk, AreDeletedWithTheirCheckpoint) {
  ASSERT_TRUE(set(disk_, {{"a", "b"}}));
  ASSERT_TRUE(delete_checkpoint(disk_, {2, 2}));
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{1, 3, 4}));
  EXPECT_FALSE(disk_.contents(path(1)));
}

TEST_F(GivenTagsOnDisk, DamagedOnesAreToldAndProtect) {
  ASSERT_TRUE(set(disk_, {{"a", "b"}}));
  ASSERT_TRUE(disk_.flip_bit(path(1), 8 * 60));
  ASSERT_TRUE(given(disk_, 2)->fault);
  EXPECT_EQ(code_of(set(disk_, {{"a", "c"}})), ErrorCode::kCorrupt);
  ASSERT_TRUE(collect_garbage(disk_, {.last = 1}));
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{2, 4}));
  const auto oddities = survey_run(disk_, *read_run(disk_)).value();
  ASSERT_EQ(oddities.size(), 1U);
  EXPECT_EQ(oddities[0].kind, OddityKind::kTagsUnread);
  ASSERT_TRUE(disk_.remove_file(path(1)));
  EXPECT_TRUE(set(disk_, {{"a", "c"}})) << "after the file was deleted by hand";
}

TEST_F(GivenTagsOnDisk, ARecordOfAnotherCheckpointOrNumberDoesNotCount) {
  const TagRecord of_3{.run_id = run_id_, .attempt = {3, 3}, .number = 1, .tags = {{"a", "b"}}};
  disk_.plant(path(1), encode_tags(of_3));
  EXPECT_TRUE(given(disk_, 2)->fault);
  const TagRecord number_9{.run_id = run_id_, .attempt = {2, 2}, .number = 9, .tags = {}};
  disk_.plant(path(1), encode_tags(number_9));
  EXPECT_TRUE(given(disk_, 2)->fault);
}

TEST_F(GivenTagsOnDisk, TheyAreNoOddityAndTheirTemporaryFileIsKnown) {
  ASSERT_TRUE(set(disk_, {{"a", "b"}}));
  EXPECT_TRUE(survey_run(disk_, *read_run(disk_))->empty());
  EXPECT_TRUE(unlisted_names(disk_, manifests_[1])->empty());
  EXPECT_EQ(kind_in_attempt({.name = "tags.0123456789abcdef.tmp"}), NameKind::kTemporary);
}

TEST_F(GivenTagsOnDisk, APowerCutAnywhereLeavesTheOldOrTheNew) {
  ASSERT_TRUE(set(disk_, {{"old", "1"}}));
  const auto counted = disk_.clone();
  ASSERT_TRUE(set(*counted, {{"new", "2"}}));
  EXPECT_EQ(counted->pending_count(), 1U) << "only the removal of the old record";
  const Tags old_ones = {{"old", "1"}};
  const Tags new_ones = {{"old", "1"}, {"new", "2"}};
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {
    const auto disk = disk_.clone();
    disk->crash_at(index);
    const bool is_told = set(*disk, {{"new", "2"}}).has_value();
    for (const auto& image : disk->crash_images(kImagesMax, index)) {
      const Tags found = tags(*image, 2);
      EXPECT_TRUE(found == new_ones || (found == old_ones && !is_told))
          << index << ", " << image->label();
    }
  }
}

TEST_F(GivenTagsOnDisk, EverySyncIsNeeded) {
  const auto counted = disk_.clone();
  ASSERT_TRUE(set(*counted, {{"new", "2"}}));
  std::size_t syncs = 0;
  for (const SimOperation& operation : counted->operations()) {
    const bool is_sync =
        operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
    if (!is_sync) continue;
    ++syncs;
    const auto disk = disk_.clone();
    disk->ignore_sync(operation.index);
    ASSERT_TRUE(set(*disk, {{"new", "2"}}));
    bool betrayed = false;
    for (const auto& image : disk->crash_images(kImagesMax, 1)) {
      if (tags(*image, 2) != Tags{{"new", "2"}}) betrayed = true;
    }
    EXPECT_TRUE(betrayed) << operation.index;
  }
  EXPECT_EQ(syncs, 2U);
}

TEST_F(GivenTagsOnDisk, AnErrorAnywhereLeavesTheOldOrTheNewAndTheNextTryWorks) {
  ASSERT_TRUE(set(disk_, {{"old", "1"}}));
  const auto counted = disk_.clone();
  ASSERT_TRUE(set(*counted, {{"new", "2"}}));
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {
    const auto disk = disk_.clone();
    disk->fail_at(index, EIO);
    std::ignore = set(*disk, {{"new", "2"}});  // a removal that fails is no failure
    EXPECT_TRUE(tags(*disk, 2).contains("old")) << index;
    ASSERT_TRUE(set(*disk, {{"new", "2"}}).has_value()) << index;
    EXPECT_EQ(tags(*disk, 2), (Tags{{"new", "2"}, {"old", "1"}})) << index;
  }
}

// At each of the operations of one process, the other does all of its own.
TEST_F(GivenTagsOnDisk, TwoProcessesLoseNothingOfEachOther) {
  for (const char* point : {"tag.written", "tag.renamed", "tag.synced"}) {
    for (int others = 1; others <= 3; ++others) {
      const auto disk = disk_.clone();
      ASSERT_TRUE(fail_points::arm(std::string(point) + "=error:EIO"));
      // The first process stops there, and its temporary file goes; a record that it placed stays.
      EXPECT_FALSE(set(*disk, {{"first", "1"}}));
      fail_points::disarm();
      for (int i = 0; i < others; ++i) ASSERT_TRUE(set(*disk, {{std::to_string(i), "other"}}));
      ASSERT_TRUE(set(*disk, {{"first", "1"}}));
      EXPECT_EQ(tags(*disk, 2).size(), static_cast<std::size_t>(others) + 1) << point;
    }
  }
}

// Runs `others` between the first listing of a process and the placing of its record.
class Interrupted final : public Vfs {
 public:
  Interrupted(SimDisk& disk, std::function<void()> others)
      : disk_(disk), others_(std::move(others)) {}
  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    if (others_) std::exchange(others_, nullptr)();
    return disk_.create(name, access);
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    return disk_.open_read(name, access);
  }
  Status make_dir(std::string_view name) override { return disk_.make_dir(name); }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    return disk_.rename_no_replace(from, to);
  }
  Status rename_replacing(std::string_view from, std::string_view to) override {
    return disk_.rename_replacing(from, to);
  }
  Status remove_file(std::string_view name) override { return disk_.remove_file(name); }
  Status remove_dir(std::string_view name) override { return disk_.remove_dir(name); }
  Status sync_dir(std::string_view name) override { return disk_.sync_dir(name); }
  Result<std::vector<DirEntry>> list(std::string_view name) override { return disk_.list(name); }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return disk_.path_of(name);
  }

 private:
  SimDisk& disk_;
  std::function<void()> others_;
};

TEST_F(GivenTagsOnDisk, ANumberThatOthersTookAndGaveUpMeanwhileIsNoTrap) {
  for (int others = 1; others <= 3; ++others) {
    const auto disk = disk_.clone();
    Interrupted slow(*disk, [&] {
      for (int i = 0; i < others; ++i) ASSERT_TRUE(set(*disk, {{std::to_string(i), "other"}}));
    });
    ASSERT_TRUE(set(slow, {{"slow", "1"}}));
    EXPECT_EQ(tags(*disk, 2).size(), static_cast<std::size_t>(others) + 1) << others;
    EXPECT_TRUE(tags(*disk, 2).contains("slow"));
  }
}

TEST_F(GivenTagsOnDisk, ATagForACheckpointThatGoesMeanwhileIsRefused) {
  Interrupted slow(disk_, [&] {
    ASSERT_TRUE(disk_.rename_no_replace(join_name(attempt_dir_name({2, 2}), kManifestFile),
                                        join_name(attempt_dir_name({2, 2}), kDeletedManifestFile)));
  });
  EXPECT_EQ(code_of(set(slow, {{"late", "1"}})), ErrorCode::kNotFound);
  EXPECT_FALSE(disk_.contents(path(1))) << "the manifest may come back, and then it has no tag";
  ASSERT_TRUE(collect_garbage(disk_, {}));
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{1, 3, 4}));
}

TEST_F(GivenTagsOnDisk, ATagThatComesAfterOneWasRemovedKeepsTheCheckpointToo) {
  ASSERT_TRUE(set(disk_, {{"a", "b"}}));
  ASSERT_TRUE(set(disk_, {}, {"a"}));
  const auto late = meanwhile([&] { ASSERT_TRUE(set(disk_, {{"keep", "me"}})); });
  const auto collected = collect_garbage(disk_, {.last = 1}, {.held = late});
  ASSERT_TRUE(collected) << collected.error().message();
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{2, 4}));
  EXPECT_EQ(collected->removed.size(), 2U);
}

// Acts when the first directory goes.
class ActsAtADeletion final : public PassingVfs {
 public:
  ActsAtADeletion(Vfs& disk, std::function<void()> act) : PassingVfs(disk), act_(std::move(act)) {}
  Status remove_dir(std::string_view name) override {
    if (act_) std::exchange(act_, {})();
    return PassingVfs::remove_dir(name);
  }

 private:
  std::function<void()> act_;
};

// The deletion of another checkpoint may take minutes: each is looked at right before it goes.
TEST_F(GivenTagsOnDisk, ATagThatComesWhileAnotherCheckpointIsDeletedKeepsIts) {
  ActsAtADeletion disk(disk_, [&] { ASSERT_TRUE(set(disk_, {{"keep", "me"}})); });
  ASSERT_TRUE(collect_garbage(disk, {.last = 1}));
  EXPECT_EQ(steps(disk_), (std::vector<std::uint64_t>{2, 4}));
}

}  // namespace
}  // namespace deepfreeze::given_tags_test
