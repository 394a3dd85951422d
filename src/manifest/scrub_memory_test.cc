#include "manifest/scrub_memory.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::scrub_memory_test {
namespace {

constexpr std::size_t kImagesMax = 2000;
const std::string kRun = "0123456789abcdef";
const ScrubRecord kOld{.run_id = kRun, .entries = {{{1, 1}, 5, true}}};
const ScrubRecord kNew{.run_id = kRun, .entries = {{{1, 1}, 5, true}, {{2, 2}, 6, false}}};

std::unique_ptr<SimDisk> disk_with_memory() {
  auto disk = std::make_unique<SimDisk>();
  disk->plant(kScrubFile, encode_scrub(kOld));
  return disk;
}

TEST(ScrubMemory, IsDurableOnceItIsRemembered) {
  const auto disk = disk_with_memory();
  ASSERT_TRUE(remember_scrubs(*disk, kNew).has_value());
  EXPECT_EQ(disk->pending_count(), 0U);
  EXPECT_EQ(recall_scrubs(*disk, kRun).value(), kNew);
}

TEST(ScrubMemory, APowerCutAnywhereLeavesTheOldOrTheNew) {
  const auto counted = disk_with_memory();
  ASSERT_TRUE(remember_scrubs(*counted, kNew).has_value());
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {
    const auto disk = disk_with_memory();
    disk->crash_at(index);
    EXPECT_FALSE(remember_scrubs(*disk, kNew).has_value());
    for (const auto& image : disk->crash_images(kImagesMax, index)) {
      const auto found = recall_scrubs(*image, kRun);
      EXPECT_TRUE(found == kOld || found == kNew) << index << ", " << image->label();
    }
  }
}

// A hint may be lost, but not be there in part, nor go once it was remembered.
TEST(ScrubMemory, EverySyncOfItIsNeeded) {
  const auto counted = disk_with_memory();
  ASSERT_TRUE(remember_scrubs(*counted, kNew).has_value());
  std::size_t syncs = 0;
  for (const SimOperation& operation : counted->operations()) {
    const bool is_sync =
        operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
    if (!is_sync) continue;
    ++syncs;
    const auto disk = disk_with_memory();
    disk->ignore_sync(operation.index);
    ASSERT_TRUE(remember_scrubs(*disk, kNew).has_value());
    bool betrayed = false;
    for (const auto& image : disk->crash_images(kImagesMax, 1)) {
      if (recall_scrubs(*image, kRun) != kNew) betrayed = true;
    }
    EXPECT_TRUE(betrayed) << operation.index;
  }
  EXPECT_EQ(syncs, 2U);
}

TEST(ScrubMemory, AnErrorAnywhereIsToldAndTheNextOneIsRemembered) {
  const auto counted = disk_with_memory();
  ASSERT_TRUE(remember_scrubs(*counted, kNew).has_value());
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {
    const auto disk = disk_with_memory();
    disk->fail_at(index, EIO);
    EXPECT_FALSE(remember_scrubs(*disk, kNew).has_value()) << index;
    EXPECT_TRUE(remember_scrubs(*disk, kNew).has_value()) << index;
    EXPECT_EQ(disk->list_all(), std::vector{std::string(kScrubFile)}) << index;
  }
}

TEST(ScrubMemory, WhatIsNotOursOrCantBeReadIsAnError) {
  SimDisk disk;
  for (const char* text : {"", "{}", "mine", R"( {"crc32c":"00000000"})"}) {
    disk.plant(kScrubFile, text);
    EXPECT_EQ(code_of(recall_scrubs(disk, kRun)), ErrorCode::kMismatch) << text;
  }
  disk.plant(kScrubFile, encode_scrub(kOld) + std::string(4 << 20, ' '));
  EXPECT_EQ(code_of(recall_scrubs(disk, kRun)), ErrorCode::kCorrupt) << "too large to be read";
  disk.plant(kScrubFile, encode_scrub(kOld));
  disk.fail_read_at(disk.read_count(), EACCES);
  EXPECT_EQ(code_of(recall_scrubs(disk, kRun)), ErrorCode::kIo);
  EXPECT_EQ(recall_scrubs(disk, kRun).value(), kOld) << "the next time";
}

TEST(ScrubMemory, WhatCouldNotBeReadAgainIsNotRemembered) {
  SimDisk disk;
  ScrubRecord record{.run_id = kRun, .entries = {}};
  record.entries.assign(40'000, {{1, 1}, 1'700'000'000'000'000, true});
  ASSERT_TRUE(remember_scrubs(disk, record).has_value());
  EXPECT_EQ(recall_scrubs(disk, kRun)->entries.size(), 40'000U);
  record.entries.resize(80'000);
  EXPECT_EQ(code_of(remember_scrubs(disk, record)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(recall_scrubs(disk, kRun)->entries.size(), 40'000U);
}

}  // namespace
}  // namespace deepfreeze::scrub_memory_test
