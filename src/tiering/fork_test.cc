#include "tiering/fork.h"

#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/directory_vfs.h"
#include "support/scoped_dir.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze::fork_test {
namespace {

AttemptName attempt_of(const Manifest& manifest) {
  return {manifest.point.step, manifest.point.attempt_id};
}

// The parent's disk is simulated, so no file of it can be linked.
class ForkTest : public testing::Test {
 protected:
  [[nodiscard]] Result<Forked> fork(const Manifest& manifest) {
    return fork_attempt(disk_, manifest, "/parent", place());
  }
  [[nodiscard]] std::string place() const { return (dir_.path() / "new").string(); }
  [[nodiscard]] std::unique_ptr<Vfs> opened() const { return open_posix_vfs(place()).value(); }
  [[nodiscard]] bool has_checkpoint() const {
    const auto vfs = opened();
    const auto listing = read_run(*vfs);
    return listing && std::ranges::any_of(listing->attempts, [](const AttemptState& attempt) {
             return attempt.committed();
           });
  }

  SimDisk disk_;
  NearRun parent_{disk_};
  ScopedDir dir_;
};

TEST_F(ForkTest, CopiesFilesThatCantBeLinked) {
  const Manifest manifest = parent_.save(7, 2);
  const auto forked = fork(manifest);
  ASSERT_TRUE(forked) << forked.error().message();
  EXPECT_EQ(forked->bytes_copied, stored_bytes(manifest));
  const auto vfs = opened();
  const auto found = read_manifest(*vfs, attempt_of(forked->manifest), "");
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(*found, forked->manifest);
  EXPECT_NE(found->run_id, manifest.run_id);
  EXPECT_EQ(found->annotations.parent, (ParentPoint{"/parent", 7}));
  EXPECT_EQ(shared_bytes(*found), stored_bytes(manifest)) << "the headers name the parent's";
  for (const ManifestFile& file : found->files) {
    EXPECT_EQ(file.origin, (Origin{manifest.run_id, manifest.point}));
    EXPECT_TRUE(has_sealed_file(*vfs, *found, file));
  }
}

TEST_F(ForkTest, LinksFilesOnOneFileSystem) {
  const Manifest manifest = parent_.save(7);
  ASSERT_TRUE(disk_.make_dir("new"));
  DirectoryVfs there(disk_, "new");
  const auto forked = fork_attempt(disk_, manifest, "/parent", there);
  ASSERT_TRUE(forked) << forked.error().message();
  EXPECT_EQ(forked->bytes_copied, 0U);
  for (const ManifestFile& file : forked->manifest.files) {
    EXPECT_TRUE(has_sealed_file(there, forked->manifest, file));
  }
  EXPECT_EQ(code_of(fork_attempt(disk_, manifest, "/parent", there)), ErrorCode::kExists)
      << "it has a checkpoint now";
}

TEST_F(ForkTest, LinksNoFileWhoseHeaderHasRotted) {
  const Manifest manifest = parent_.save(7);
  ASSERT_TRUE(disk_.flip_bit(path_in_run(manifest, manifest.files.front().name), 1'000));
  ASSERT_TRUE(disk_.make_dir("new"));
  DirectoryVfs there(disk_, "new");
  EXPECT_EQ(code_of(fork_attempt(disk_, manifest, "/parent", there)), ErrorCode::kCorrupt);
}

TEST_F(ForkTest, DoesNotCopyABlockThatHasRotted) {
  const Manifest manifest = parent_.save(7);
  const std::string path = path_in_run(manifest, manifest.files.front().name);
  ASSERT_TRUE(disk_.flip_bit(path, 8 * (manifest.files.front().bytes - 1)));
  EXPECT_EQ(code_of(fork(manifest)), ErrorCode::kCorrupt);
  EXPECT_FALSE(has_checkpoint());
}

TEST_F(ForkTest, SaysThatTheStepIsGoneIfItWasDeletedMeanwhile) {
  const Manifest manifest = parent_.save(7);
  ASSERT_TRUE(remove_attempt(disk_, attempt_of(manifest)));
  EXPECT_EQ(code_of(fork(manifest)), ErrorCode::kNotFound);
  EXPECT_FALSE(has_checkpoint());
  ASSERT_TRUE(fork(parent_.save(7))) << "the same fork may be tried again";
}

TEST_F(ForkTest, IsRefusedInTheDirectoryOfAnotherRun) {
  ASSERT_TRUE(make_durable_directories(place()));
  const auto vfs = opened();
  ASSERT_TRUE(create_or_open_run(*vfs, {}));  // somebody is about to save there
  EXPECT_EQ(code_of(fork(parent_.save(7))), ErrorCode::kExists);
  ASSERT_TRUE(read_run(*vfs));
  EXPECT_TRUE(read_run(*vfs)->claims.empty()) << "and is not fenced";
}

}  // namespace
}  // namespace deepfreeze::fork_test
