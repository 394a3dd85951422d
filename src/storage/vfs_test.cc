#include "storage/vfs.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::vfs_test {
namespace {

constexpr std::uint64_t kBytesMax = 100;

TEST(ReadFile, GivesTheWholeFileUpToTheBound) {
  SimDisk disk;
  disk.plant("full", std::string(kBytesMax, 'x'));
  disk.plant("empty", "");
  EXPECT_EQ(read_file(disk, "full", kBytesMax).value(), std::string(kBytesMax, 'x'));
  EXPECT_EQ(read_file(disk, "empty", kBytesMax).value(), "");
  EXPECT_EQ(disk.open_files(), 0U);
}

TEST(ReadFile, RefusesMoreThanTheBoundAsCorrupt) {
  SimDisk disk;
  disk.plant("big", std::string(kBytesMax + 1, 'x'));
  const auto text = read_file(disk, "big", kBytesMax);
  ASSERT_FALSE(text);
  EXPECT_EQ(code_of(text), ErrorCode::kCorrupt);
  EXPECT_NE(text.error().message().find("big: 101 bytes"), std::string::npos);
}

TEST(ReadFile, SaysThatAFileIsMissing) {
  SimDisk disk;
  EXPECT_EQ(code_of(read_file(disk, "none", kBytesMax)), ErrorCode::kNotFound);
}

TEST(WriteNewFile, MakesTheDataDurableButNotTheName) {
  SimDisk disk;
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  EXPECT_EQ(disk.pending_count(), 1U);
  EXPECT_EQ(disk.open_files(), 0U);
  for (const auto& image : disk.crash_images(100, 1)) {
    const auto content = image->contents("a");
    EXPECT_TRUE(!content || *content == "text") << image->label();
  }
}

TEST(WriteNewFile, NeverReplacesAFile) {
  SimDisk disk;
  disk.plant("a", "old");
  const auto written = write_new_file(disk, "a", "new");
  ASSERT_FALSE(written);
  EXPECT_EQ(code_of(written), ErrorCode::kExists);
  EXPECT_EQ(disk.contents("a"), "old");
}

TEST(WriteNewFile, ReportsTheFailureOfEachOfItsOperations) {
  SimDisk whole;
  ASSERT_TRUE(write_new_file(whole, "a", "text"));
  ASSERT_EQ(whole.operation_count(), 3U);  // create, write, sync
  for (std::size_t index = 0; index < whole.operation_count(); ++index) {
    SimDisk disk;
    disk.fail_at(index, EDQUOT);
    const auto written = write_new_file(disk, "a", "text");
    ASSERT_FALSE(written) << index;
    EXPECT_EQ(code_of(written), ErrorCode::kNoSpace) << index;
    EXPECT_EQ(disk.open_files(), 0U) << index;
  }
}

}  // namespace
}  // namespace deepfreeze::vfs_test
