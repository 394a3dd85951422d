// device_reader.
#include "restore/device_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/unique_fd.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/refuse_direct.h"
#include "support/scoped_dir.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr std::uint64_t kMiB = 1024 * 1024;

// A clock that only sleeping moves, and the test.
struct Stage {
  Monotonic::time_point now{};
  std::vector<Monotonic::duration> sleeps;

  RateLimit::Time time() {
    return {.now = [this] { return now; },
            .sleep =
                [this](Monotonic::duration length) {
                  sleeps.push_back(length);
                  now += length;
                }};
  }
  [[nodiscard]] milliseconds passed() const {
    return duration_cast<milliseconds>(now.time_since_epoch());
  }
};

TEST(RateLimit, HoldsOverAPassHoweverItIsCut) {
  for (const std::uint64_t piece : {std::uint64_t{4096}, 4 * kMiB, 64 * kMiB}) {
    Stage stage;
    RateLimit limit(64 * kMiB, stage.time());
    for (std::uint64_t taken = 0; taken < 128 * kMiB; taken += piece) limit.take(piece);
    EXPECT_NEAR(static_cast<double>(stage.passed().count()), 2000, 1) << piece;
    EXPECT_EQ(limit.taken(), 128 * kMiB);
    EXPECT_LE(std::ranges::max(stage.sleeps), milliseconds(100)) << "or Ctrl-C has to wait";
  }
}

TEST(RateLimit, TheTimeOfTheReadsThemselvesCounts) {
  Stage stage;
  RateLimit limit(64 * kMiB, stage.time());
  for (int i = 0; i < 32; ++i) {
    limit.take(4 * kMiB);
    stage.now += milliseconds(60);  // of the 62.5 that they are worth
  }
  EXPECT_NEAR(static_cast<double>(stage.passed().count()), 2060, 3);
}

TEST(RateLimit, ASlowDeviceCatchesUpForASecondAndNoMore) {
  Stage stage;
  RateLimit limit(64 * kMiB, stage.time());
  stage.now += milliseconds(60'000);
  for (int i = 0; i < 16; ++i) limit.take(4 * kMiB);
  EXPECT_TRUE(stage.sleeps.empty()) << "a second's worth";
  limit.take(4 * kMiB);
  EXPECT_FALSE(stage.sleeps.empty());
}

TEST(RateLimit, ZeroIsNoLimit) {
  Stage stage;
  RateLimit limit(0, stage.time());
  limit.take(std::uint64_t{1} << 60);
  EXPECT_TRUE(stage.sleeps.empty());
}

std::string text_of(File& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '?');
  const auto count = file.read_at(offset, std::as_writable_bytes(std::span(text)));
  EXPECT_TRUE(count.has_value()) << count.error().message();
  text.resize(count.value_or(0));
  return text;
}

// The simulated disk refuses the same direct reads as a real one.
TEST(DeviceReader, ReadsDirectlyWhateverTheAlignment) {
  auto disk = std::make_unique<SimDisk>();
  std::string content;
  for (int i = 0; content.size() < 9000; ++i) content += std::to_string(i) + ',';
  disk->plant("file", content);
  RateLimit limit(0);
  DeviceReader reader(std::move(disk), limit);
  const auto file = reader.open_read("file", Access::kBuffered).value();
  EXPECT_EQ(file->access(), Access::kDirect);
  EXPECT_EQ(text_of(*file, 0, 8), content.substr(0, 8));
  EXPECT_EQ(text_of(*file, 4090, 20), content.substr(4090, 20));
  EXPECT_EQ(text_of(*file, 1, 10'000), content.substr(1));
  EXPECT_EQ(text_of(*file, 8990, 100), content.substr(8990));
  EXPECT_EQ(text_of(*file, 20'000, 5), "");
  EXPECT_EQ(reader.read_through_cache(), "");
  EXPECT_EQ(limit.taken() % 4096, 0U) << "what the device gives, not what was asked for";
}

TEST(DeviceReader, AllButReadingGoesToTheFilesBelow) {
  RateLimit limit(0);
  DeviceReader reader(std::make_unique<SimDisk>(), limit);
  ASSERT_TRUE(reader.make_dir("d"));
  ASSERT_TRUE(write_new_file(reader, "d/a", "text"));
  ASSERT_TRUE(reader.rename_no_replace("d/a", "b"));
  ASSERT_TRUE(write_new_file(reader, "c", "other"));
  ASSERT_TRUE(reader.rename_replacing("c", "b"));
  ASSERT_TRUE(reader.remove_dir("d"));
  ASSERT_TRUE(reader.sync_dir(""));
  EXPECT_EQ(reader.list("")->size(), 1U);
  const auto file = reader.open_read("b", Access::kBuffered).value();
  EXPECT_EQ(file->size().value_or(0), 5U);
  EXPECT_EQ(code_of(file->modified_micros()), ErrorCode::kUnsupported) << "as the disk says";
  EXPECT_FALSE(file->write_at(0, std::as_bytes(std::span("x")))) << "it is open for reading";
  EXPECT_FALSE(file->truncate(0));
  EXPECT_FALSE(file->preallocate(1));
  EXPECT_TRUE(file->sync());
  ASSERT_TRUE(file->close());
  EXPECT_FALSE(file->sync());
  ASSERT_TRUE(reader.remove_file("b"));
  EXPECT_EQ(code_of(reader.open_read("b", Access::kBuffered)), ErrorCode::kNotFound);
}

TEST(DeviceReader, EveryReadThatFailsIsAnError) {
  for (std::size_t index = 0; index < 4; ++index) {  // opened twice, measured, read
    auto disk = std::make_unique<SimDisk>();
    disk->plant("file", std::string(9000, 'x'));
    disk->fail_read_at(index, EIO);
    RateLimit limit(0);
    DeviceReader reader(std::move(disk), limit);
    const auto file = reader.open_read("file", Access::kBuffered);
    EXPECT_EQ(file.has_value(), index == 3);
    if (!file) {
      EXPECT_EQ(code_of(file), ErrorCode::kIo) << index;
      continue;
    }
    std::array<std::byte, 10> into{};
    EXPECT_EQ(code_of((*file)->read_at(1, into)), ErrorCode::kIo);
  }
}

TEST(DeviceReader, AReadLargerThanAllMemoryIsAnError) {
  auto disk = std::make_unique<SimDisk>();
  disk->plant("file", "text");
  RateLimit limit(0);
  DeviceReader reader(std::move(disk), limit);
  const auto file = reader.open_read("file", Access::kDirect).value();
  std::byte one{};
  EXPECT_EQ(code_of(file->read_at(1, std::span(&one, std::size_t{1} << 60))), ErrorCode::kNoSpace);
}

TEST(DeviceReader, ADirectoryThatIsNoRunIsRefused) {
  const ScopedDir dir;
  RateLimit limit(0);
  EXPECT_EQ(code_of(open_run_on_device(dir.path(), limit)), ErrorCode::kNotFound);
}

TEST(DeviceReader, SaysWhereTheFileSystemTakesNoDirectReads) {
  auto disk = std::make_unique<SimDisk>();
  disk->plant("a", "text");
  disk->plant("b", "text");
  disk->refuse_direct();
  RateLimit limit(0);
  DeviceReader reader(std::move(disk), limit);
  EXPECT_EQ(reader.read_through_cache(), "") << "nothing was read yet";
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(text_of(*reader.open_read(name, Access::kDirect).value(), 1, 2), "ex");
  }
  EXPECT_EQ(reader.read_through_cache(), "sim:/a") << "one is enough";
}

TEST(DeviceReader, WaitsForTheLimitBeforeItReads) {
  auto disk = std::make_unique<SimDisk>();
  disk->plant("file", std::string(2 * kMiB, 'x'));
  Stage stage;
  RateLimit limit(kMiB, stage.time());
  DeviceReader reader(std::move(disk), limit);
  EXPECT_EQ(text_of(*reader.open_read("file", Access::kDirect).value(), 0, 2 * kMiB).size(),
            2 * kMiB);
  EXPECT_NEAR(static_cast<double>(stage.passed().count()), 2000, 10);
}

bool is_cached(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* const page = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd.get(), 0);
  unsigned char resident = 0;
  EXPECT_NE(page, MAP_FAILED);
  EXPECT_EQ(::mincore(page, 1, &resident), 0);
  ::munmap(page, 1);
  return (resident & 1U) != 0;
}

// tmpfs and ramfs: memory is all they have, nothing can be dropped from it.
bool is_in_memory(const std::filesystem::path& path) {
  struct statfs system{};
  EXPECT_EQ(::statfs(path.c_str(), &system), 0);
  return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

TEST(DeviceReader, DropsWhatTheKernelHasInMemory) {
  const ScopedDir dir;
  if (is_in_memory(dir.path())) GTEST_SKIP() << "LEFT OUT: the files lie in memory here";
  auto files = open_posix_vfs(dir.path()).value();
  ASSERT_TRUE(write_new_file(*files, "file", "text").has_value());
  ASSERT_EQ(read_file(*files, "file", 100).value(), "text");
  ASSERT_TRUE(is_cached(dir.path() / "file"));
  RateLimit limit(0);
  DeviceReader reader(std::move(files), limit);
  EXPECT_EQ(read_file(reader, "file", 100).value(), "text");
  EXPECT_FALSE(is_cached(dir.path() / "file"));
}

TEST(DeviceReader, LeavesNothingInTheCacheWhereItReadsThroughIt) {
  const ScopedDir dir;
  if (is_in_memory(dir.path())) GTEST_SKIP() << "LEFT OUT: the files lie in memory here";
  const auto path = dir.path() / "file";
  bool cached = false;
  const bool ran = run_with_direct_access_refused([&] {
    auto files = open_posix_vfs(dir.path()).value();
    ASSERT_TRUE(write_new_file(*files, "file", "text").has_value());
    ASSERT_TRUE(files->open_read("file", Access::kBuffered).value()->flush_range(0, 4).has_value());
    ASSERT_FALSE(is_cached(path));
    RateLimit limit(0);
    DeviceReader reader(std::move(files), limit);
    EXPECT_EQ(read_file(reader, "file", 100).value(), "text");
    cached = is_cached(path);
    auto closed = reader.open_read("file", Access::kDirect).value();
    EXPECT_EQ(text_of(*closed, 0, 4), "text");
    ASSERT_TRUE(closed->close());
    cached = cached || is_cached(path);
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  EXPECT_FALSE(cached);
}

}  // namespace
}  // namespace deepfreeze
