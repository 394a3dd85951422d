// Flusher's mending: bad copies, and manifests that rot or are lost.
#include <gtest/gtest.h>

#include <atomic>

#include "manifest/commit.h"
#include "tiering/flusher_fixture.h"

namespace deepfreeze {
namespace {

TEST_F(FlusherTest, ABadCopyIsMendedFromTheNextTier) {
  const Manifest saved = run_.save(1, 2);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  for (const bool on_far : {false, true}) {
    SimDisk& disk = on_far ? disk_ : near_;
    ASSERT_TRUE(
        disk.flip_bit(path_in_run(saved, saved.files[1].name), 8 * (saved.files[1].bytes - 10)));
    ASSERT_NE(broken_tier(disk, run_.run_id()), "");
    flusher->mend({.manifest = saved, .file = saved.files[1], .bad = on_far ? 1U : 0U});
    EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
    EXPECT_EQ(broken_tier(disk, run_.run_id()), "");
  }
  EXPECT_EQ(logged("mended"), 2U);
}

TEST_F(FlusherTest, ABadCopyStaysBadIfNoTierHasAGoodOne) {
  const Manifest saved = run_.save(1);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  const ManifestFile& file = saved.files.front();
  for (SimDisk* disk : {&near_, &disk_}) {
    ASSERT_TRUE(disk->flip_bit(path_in_run(saved, file.name), 8 * (file.bytes - 10)));
  }
  flusher->mend({.manifest = saved, .file = file, .bad = 0});
  EXPECT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(logged("mended"), 0U);
  EXPECT_EQ(logged("stays damaged"), 1U);
}

// Its manifests can't be read once a file has come.
class LostSightVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Status rename_replacing(std::string_view from, std::string_view to) override {
    is_lost_ = true;
    return PassingVfs::rename_replacing(from, to);
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (is_lost_ && name.ends_with(kManifestFile)) return fail(ErrorCode::kIo, "it is unreadable");
    return PassingVfs::open_read(name, access);
  }

 private:
  std::atomic<bool> is_lost_{false};
};

// Only a manifest that is gone tells that the attempt was deleted meanwhile.
TEST_F(FlusherTest, ACopyThatWasMendedStaysThoughItsManifestCannotBeReadBehindIt) {
  const Manifest saved = run_.save(1);
  LostSightVfs lost(disk_);
  const auto flusher = start(several(far(lost)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  const ManifestFile& file = saved.files.front();
  ASSERT_TRUE(disk_.flip_bit(path_in_run(saved, file.name), 8 * (file.bytes - 10)));
  flusher->mend({.manifest = saved, .file = file, .bad = 1});
  std::ignore = flusher->drain(kDeadline, Flusher::OnFailure::kGiveUp);
  EXPECT_EQ(logged("stays damaged"), 1U);
  EXPECT_EQ(broken_tier(disk_, run_.run_id()), "");
  EXPECT_TRUE(has_committed(disk_, saved));
}

TEST_F(FlusherTest, AManifestThatRotsOnTheFirstTierIsMended) {
  const Manifest saved = run_.save(1);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(near_.flip_bit(path_in_run(saved, kManifestFile), 99));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_TRUE(has_committed(near_, saved));
}

TEST_F(FlusherTest, AManifestThatIsLostOnTheFirstTierIsMended) {
  const Manifest saved = run_.save(1, 2);
  const std::string text = near_.contents(path_in_run(saved, kManifestFile)).value();
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(near_.remove_file(path_in_run(saved, kManifestFile)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(near_.contents(path_in_run(saved, kManifestFile)), text);
}

// A deletion ends without files.
TEST_F(FlusherTest, AManifestIsNotPutBackWithoutItsFiles) {
  const Manifest saved = run_.save(1, 2);
  run_.save(2);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(near_.remove_file(path_in_run(saved, kManifestFile)));
  ASSERT_TRUE(near_.remove_file(path_in_run(saved, saved.files[1].name)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_FALSE(near_.contents(path_in_run(saved, kManifestFile)));
}

// The first listing of each look misses both names of a manifest that is just being renamed; the
// next one may fail.
class RenamingVfs final : public PassingVfs {
 public:
  enum class Next : std::uint8_t { kIsWhole, kFails };
  RenamingVfs(Vfs& disk, std::string directory, Next next)
      : PassingVfs(disk), directory_(std::move(directory)), next_(next) {}
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    const bool is_next = name == directory_ && has_missed_;
    if (is_next && next_ == Next::kFails) return fail(ErrorCode::kIo, "it can't be listed");
    auto entries = PassingVfs::list(name);
    if (entries && name == directory_ && !std::exchange(has_missed_, true)) {
      std::erase_if(*entries,
                    [](const DirEntry& entry) { return entry.name == kDeletedManifestFile; });
    }
    return entries;
  }

 private:
  const std::string directory_;
  const Next next_;
  bool has_missed_ = false;
};

TEST_F(FlusherTest, AManifestIsNotPutBackBesideTheMarkOfADeletion) {
  using Next = RenamingVfs::Next;
  const Manifest saved = run_.save(1, 2);
  run_.save(2);
  const std::string directory = attempt_dir_name(name_of(saved));
  std::atomic<Next> next = Next::kIsWhole;
  Flusher::Settings one = settings(several(far(disk_)));
  one.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<RenamingVfs>(near_, directory, next.load());
  };
  const auto flusher = Flusher::start(std::move(one));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(near_.rename_no_replace(path_in_run(saved, kManifestFile),
                                      directory + "/" + std::string(kDeletedManifestFile)));
  for (const Next each : {Next::kIsWhole, Next::kFails}) {
    next = each;
    ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
    EXPECT_FALSE(near_.contents(path_in_run(saved, kManifestFile)));
  }
}

// Another process decides the attempt right before its manifest gets its name.
class DecidedVfs final : public PassingVfs {
 public:
  DecidedVfs(SimDisk& disk, std::string file, std::string outcome)
      : PassingVfs(disk), disk_(disk), file_(std::move(file)), outcome_(std::move(outcome)) {}
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    if (to == file_) disk_.plant(file_, outcome_);
    return PassingVfs::rename_no_replace(from, to);
  }
  Status rename_replacing(std::string_view from, std::string_view to) override {
    if (to == file_) disk_.plant(file_, outcome_);
    return PassingVfs::rename_replacing(from, to);
  }

 private:
  SimDisk& disk_;
  const std::string file_;
  const std::string outcome_;
};

TEST_F(FlusherTest, AnAttemptThatIsDecidedMeanwhileKeepsItsOutcome) {
  const Manifest saved = run_.save(1, 2);
  run_.save(2);
  const std::string path = path_in_run(saved, kManifestFile);
  Manifest aborted = saved;
  aborted.outcome = Outcome::kAborted;
  aborted.files.clear();
  const std::string outcome = encode_manifest(aborted);
  Flusher::Settings one = settings(several(far(disk_)));
  one.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<DecidedVfs>(near_, path, outcome);
  };
  const auto flusher = Flusher::start(std::move(one));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(near_.remove_file(path));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_EQ(near_.contents(path), outcome);
}

TEST_F(FlusherTest, ADeletedAttemptIsNotMendedBackIntoBeing) {
  const Manifest saved = run_.save(1);
  run_.save(2);
  const auto flusher = start(several(far(disk_)));
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  ASSERT_TRUE(remove_attempt(near_, name_of(saved)));
  flusher->mend({.manifest = saved, .file = saved.files[0], .bad = 0});
  ASSERT_EQ(text_of(flusher->drain(kDeadline)), "");
  EXPECT_FALSE(near_.contents(path_in_run(saved, saved.files[0].name)));
}

TEST_F(FlusherTest, AGoodCopyInBetweenServesIfTheNearestIsBad) {
  const Manifest saved = run_.save(1);
  SimDisk second;
  {
    const auto one = start(several(far(disk_)));
    ASSERT_EQ(text_of(one->drain(kDeadline)), "");
    one->stop();
  }
  ASSERT_TRUE(
      near_.flip_bit(path_in_run(saved, saved.files[0].name), 8 * (saved.files[0].bytes - 10)));
  const auto both = start(several(far(disk_), far(second)));
  EXPECT_EQ(text_of(both->drain(kDeadline)), "");
  EXPECT_EQ(steps_on(second), Steps{1});
}

}  // namespace
}  // namespace deepfreeze
