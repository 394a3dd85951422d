#include "support/sim_disk.h"

#include <gtest/gtest.h>

#include <set>

#include <cerrno>
#include <thread>

#include "support/aligned_bytes.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(SimDisk, LogsEveryChangingOrSyncingOperationWithItsIndex) {
  SimDisk disk;
  ASSERT_TRUE(disk.make_dir("d"));
  auto file = disk.create("d/a", Access::kBuffered).value();
  ASSERT_TRUE(file->preallocate(4));
  ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  ASSERT_TRUE(file->truncate(2));
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->size());
  ASSERT_TRUE(file->close());
  ASSERT_TRUE(disk.list("d"));
  ASSERT_TRUE(disk.rename_no_replace("d/a", "d/b"));
  ASSERT_TRUE(disk.sync_dir("d"));
  EXPECT_FALSE(disk.make_dir("d"));  // a refused one has an index too
  ASSERT_TRUE(disk.remove_file("d/b"));
  ASSERT_TRUE(disk.remove_dir("d"));
  using enum SimOperationKind;
  const std::vector<SimOperationKind> expected = {kMakeDir,  kCreate,     kPreallocate, kWrite,
                                                  kTruncate, kSync,       kRename,      kSyncDir,
                                                  kMakeDir,  kRemoveFile, kRemoveDir};
  const auto operations = disk.operations();
  ASSERT_EQ(operations.size(), expected.size());
  for (std::size_t index = 0; index < expected.size(); ++index) {
    EXPECT_EQ(operations[index].kind, expected[index]) << index;
    EXPECT_EQ(operations[index].index, index);
  }
  EXPECT_EQ(operations[6].name, "d/a");
  EXPECT_EQ(operations[6].target, "d/b");
}

TEST(SimDisk, FromTheCrashOnEveryCallFailsAndNothingChanges) {
  SimDisk disk;
  disk.plant("old", "text");
  disk.crash_at(1);
  auto file = disk.create("a", Access::kBuffered).value();
  EXPECT_TRUE(disk.contents("a"));
  EXPECT_TRUE(disk.list(""));  // the power goes with the next operation
  const auto written = file->write_at(0, bytes_of("text"));
  ASSERT_FALSE(written);
  EXPECT_EQ(code_of(written), ErrorCode::kIo);
  EXPECT_EQ(written.error().message(), "write sim:/a: power is off");
  EXPECT_FALSE(file->sync());
  EXPECT_FALSE(file->size());
  EXPECT_FALSE(file->close());
  EXPECT_FALSE(disk.sync_dir(""));
  EXPECT_FALSE(disk.list(""));
  EXPECT_FALSE(disk.open_read("old", Access::kBuffered));
  EXPECT_FALSE(disk.remove_file("old"));
  EXPECT_EQ(disk.contents("a"), "");
  EXPECT_EQ(disk.operation_count(), 1U);
  EXPECT_EQ(disk.pending_count(), 1U);
  EXPECT_EQ(disk.open_files(), 0U);
}

TEST(SimDisk, OneOperationFailsAndTheNextWorks) {
  SimDisk disk;
  disk.fail_at(0, ENOSPC);
  disk.fail_at(2, EIO);
  EXPECT_EQ(code_of(disk.create("a", Access::kBuffered)), ErrorCode::kNoSpace);
  auto file = disk.create("a", Access::kBuffered).value();
  EXPECT_EQ(code_of(file->write_at(0, bytes_of("text"))), ErrorCode::kIo);
  EXPECT_EQ(disk.contents("a"), "");
  EXPECT_TRUE(file->write_at(0, bytes_of("text")));
  EXPECT_EQ(disk.contents("a"), "text");
}

TEST(SimDisk, AnOperationIsCarriedOutAndCalledFailed) {
  SimDisk disk;
  ASSERT_TRUE(disk.make_dir("d"));
  auto file = disk.create("a", Access::kBuffered).value();
  for (std::size_t index = 2; index < 9; ++index) disk.fail_after(index, EIO);
  EXPECT_EQ(code_of(file->write_at(0, bytes_of("text"))), ErrorCode::kIo);
  EXPECT_EQ(disk.contents("a"), "text");
  EXPECT_FALSE(file->truncate(2));
  EXPECT_EQ(disk.contents("a"), "te");
  EXPECT_FALSE(file->sync());
  EXPECT_FALSE(disk.rename_no_replace("a", "b"));
  EXPECT_EQ(disk.injected()->message(), "rename sim:/a: Input/output error");
  EXPECT_FALSE(disk.create("c", Access::kBuffered));
  EXPECT_FALSE(disk.remove_dir("d"));
  EXPECT_EQ(disk.list_all(), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(disk.open_files(), 1U);
  EXPECT_FALSE(disk.sync_dir(""));
  EXPECT_EQ(disk.pending_count(), 0U);
  EXPECT_TRUE(disk.sync_dir(""));
}

TEST(SimDisk, AfterAFailedSyncALaterOneReportsSuccessAndMakesNothingDurable) {
  SimDisk disk;
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  disk.fail_at(2, EIO);
  EXPECT_FALSE(file->sync());
  EXPECT_TRUE(file->sync());
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(disk.pending_count(), 1U);
}

TEST(SimDisk, TheFreeSpaceEndsAWriteInTheMiddle) {
  SimDisk disk;
  disk.set_bytes_free(6);
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, bytes_of("1234")));
  ASSERT_TRUE(file->write_at(0, bytes_of("abcd")));  // overwriting takes no space
  EXPECT_EQ(code_of(file->write_at(4, bytes_of("5678"))), ErrorCode::kNoSpace);
  EXPECT_EQ(disk.contents("a"), "abcd56");
  EXPECT_EQ(disk.bytes_written(), 10U);
  EXPECT_EQ(code_of(file->preallocate(7)), ErrorCode::kNoSpace);
}

TEST(SimDisk, PreallocatedSpaceIsTakenAndRemovalGivesItBack) {
  SimDisk disk;
  disk.set_bytes_free(8);
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->preallocate(8));
  EXPECT_EQ(file->size().value(), 0U);
  auto other = disk.create("b", Access::kBuffered).value();
  EXPECT_EQ(code_of(other->write_at(0, bytes_of("x"))), ErrorCode::kNoSpace);
  EXPECT_TRUE(file->write_at(0, bytes_of("12345678")));
  ASSERT_TRUE(file->truncate(6));
  EXPECT_TRUE(other->write_at(0, bytes_of("xy")));
  ASSERT_TRUE(disk.remove_file("a"));
  EXPECT_TRUE(other->write_at(2, bytes_of("345678")));
}

TEST(SimDisk, CountsFilesThatNobodyClosed) {
  SimDisk disk;
  disk.plant("a", "text");
  auto first = disk.open_read("a", Access::kBuffered).value();
  auto second = disk.open_read("a", Access::kBuffered).value();
  EXPECT_EQ(disk.open_files(), 2U);
  ASSERT_TRUE(first->close());
  EXPECT_FALSE(first->close());
  first.reset();
  EXPECT_EQ(disk.open_files(), 1U);
  second.reset();
  EXPECT_EQ(disk.open_files(), 0U);
}

TEST(SimDisk, DirectAccessInsistsOnAlignment) {
  SimDisk disk;
  const AlignedBytes memory(8192);
  auto file = disk.create("a", Access::kDirect).value();
  EXPECT_EQ(file->access(), Access::kDirect);
  EXPECT_TRUE(file->write_at(4096, memory.bytes().first(4096)));
  EXPECT_EQ(file->write_at(1, memory.bytes().first(4096)).error().os_errno(), EINVAL);
  EXPECT_EQ(file->write_at(0, memory.bytes().first(4095)).error().os_errno(), EINVAL);
  EXPECT_EQ(file->write_at(0, memory.bytes().subspan(8, 4096)).error().os_errno(), EINVAL);
  disk.refuse_direct();
  EXPECT_EQ(disk.create("b", Access::kDirect).value()->access(), Access::kBuffered);
}

TEST(SimDisk, FlippedAndOverwrittenBytesAreOnTheDiskAtOnce) {
  SimDisk disk;
  disk.plant("d/a", "text");
  EXPECT_TRUE(disk.flip_bit("d/a", 8));
  EXPECT_EQ(disk.contents("d/a"), "tdxt");
  EXPECT_TRUE(disk.flip_bit("d/a", 8));
  EXPECT_TRUE(disk.overwrite("d/a", 2, "ST"));
  EXPECT_EQ(disk.contents("d/a"), "teST");
  EXPECT_FALSE(disk.flip_bit("d/a", 32));
  EXPECT_FALSE(disk.overwrite("d/a", 3, "ST"));
  EXPECT_FALSE(disk.flip_bit("none", 0));
  disk.power_off();
  const auto images = disk.crash_images(10, 1);
  ASSERT_EQ(images.size(), 1U);
  EXPECT_EQ(images[0]->contents("d/a"), "teST");
}

TEST(SimDisk, ListsAllNamesRecursively) {
  SimDisk disk;
  disk.plant("d/e/a", "");
  disk.plant("b", "");
  EXPECT_EQ(disk.list_all(), (std::vector<std::string>{"b", "d/", "d/e/", "d/e/a"}));
}

TEST(SimDisk, ACloneHasWhatIsSeenAndGoesItsOwnWay) {
  SimDisk disk;
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  disk.power_off();
  const auto clone = disk.clone();
  EXPECT_EQ(clone->contents("a"), "text");
  EXPECT_EQ(clone->pending_count(), 0U);
  EXPECT_EQ(clone->operation_count(), 0U);
  EXPECT_TRUE(clone->remove_file("a"));
  EXPECT_EQ(disk.contents("a"), "text");
}

TEST(SimDisk, AKilledProcessLosesNothingThatItsMachineHas) {
  SimDisk disk;
  disk.kill_at(1);
  auto file = disk.create("a", Access::kBuffered).value();
  EXPECT_FALSE(file->write_at(0, bytes_of("text")));
  EXPECT_FALSE(disk.list(""));
  EXPECT_EQ(disk.operation_count(), 1U);
  disk.revive();
  EXPECT_EQ(disk.contents("a"), "");
  EXPECT_EQ(disk.pending_count(), 1U);
  EXPECT_TRUE(disk.sync_dir(""));
}

TEST(SimDisk, ARemovedFileStaysReadableWhileOpen) {
  SimDisk disk;
  disk.plant("a", "text");
  auto file = disk.open_read("a", Access::kBuffered).value();
  ASSERT_TRUE(disk.remove_file("a"));
  std::array<std::byte, 8> into = {};
  EXPECT_EQ(file->read_at(0, into).value(), 4U);
}

TEST(SimDisk, AFileIsThereAsLongAsOneOfItsNamesIs) {
  SimDisk disk;
  ASSERT_TRUE(disk.make_dir("d"));
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  ASSERT_TRUE(disk.link_file("a", "d/b"));
  ASSERT_TRUE(disk.sync_dir("d"));
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(disk.remove_file("a"));
  ASSERT_TRUE(disk.sync_dir(""));
  for (const auto& image : disk.crash_images(100, 1)) EXPECT_EQ(image->contents("d/b"), "text");
  EXPECT_TRUE(disk.flip_bit("d/b", 0));
}

TEST(SimDisk, ALinkWhoseDirectoryIsNotSyncedMayBeLost) {
  SimDisk disk;
  ASSERT_TRUE(disk.make_dir("d"));
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(disk.link_file("a", "d/b"));
  std::set<bool> seen;
  for (const auto& image : disk.crash_images(100, 1)) {
    EXPECT_EQ(image->contents("a"), "text");
    seen.insert(image->contents("d/b").has_value());
  }
  EXPECT_EQ(seen, (std::set<bool>{false, true}));
}

TEST(SimDisk, AnOpenFileIsLinkedWithItsDataSyncedIfItHasAName) {
  SimDisk disk;
  SimDisk other;
  ASSERT_TRUE(disk.make_dir("d"));
  const auto unsynced = disk.create("c", Access::kBuffered).value();
  ASSERT_TRUE(unsynced->write_at(0, bytes_of("more")));
  const auto file = disk.open_read("c", Access::kBuffered).value();
  ASSERT_TRUE(disk.link_open_file(*file, "d/b"));
  ASSERT_TRUE(disk.sync_dir("d"));
  ASSERT_TRUE(disk.sync_dir(""));
  for (const auto& image : disk.crash_images(100, 1)) EXPECT_EQ(image->contents("d/b"), "more");
  EXPECT_EQ(code_of(disk.link_open_file(*file, "d/b")), ErrorCode::kExists);
  EXPECT_EQ(code_of(other.link_open_file(*file, "b")), ErrorCode::kUnsupported);
  ASSERT_TRUE(disk.remove_file("c"));
  ASSERT_TRUE(disk.remove_file("d/b"));
  EXPECT_EQ(code_of(disk.link_open_file(*file, "e")), ErrorCode::kNotFound);
}

TEST(SimDisk, RefusesLinksLikeAFileSystemThatHasNone) {
  SimDisk disk;
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  disk.refuse_links();
  const Status linked = disk.link_file("a", "b");
  ASSERT_FALSE(linked.has_value());
  EXPECT_EQ(linked.error().code(), ErrorCode::kUnsupported);
}

TEST(SimDisk, ThreadsMayShareIt) {
  SimDisk disk;
  auto file = disk.create("shared", Access::kBuffered).value();
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < 100; ++i) {
          EXPECT_TRUE(file->write_at((i * 4 + thread) * 4, bytes_of("text")));
          EXPECT_TRUE(write_new_file(disk, std::to_string(i * 4 + thread), "text"));
        }
      });
    }
  }
  EXPECT_EQ(file->size().value(), 1600U);
  EXPECT_EQ(disk.list("").value().size(), 401U);
  EXPECT_EQ(disk.open_files(), 1U);
}

}  // namespace
}  // namespace deepfreeze
