// Bits that flip in memory between the capture and the write: the checksum was taken from the
// bytes that were copied, so whoever reads finds it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/fail_point.h"
#include "base/unique_fd.h"
#include "deepfreeze/deepfreeze.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kBytes = 300'000;
constexpr std::size_t kMarkBytes = 64;
constexpr std::chrono::milliseconds kDeadline{60'000};

std::vector<std::byte> state_of(std::uint64_t step) {
  std::vector<std::byte> state(kBytes);
  std::uint64_t random = step * 977;
  for (std::byte& byte : state) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(random >> 56);
  }
  return state;
}

struct Region {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// The writable memory of this process, but for stacks and a sanitizer's own.
std::vector<Region> writable_memory() {
  constexpr std::uintptr_t kRegionBytesMax = std::uintptr_t{1} << 26;
  std::vector<Region> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    Region region;
    char dash = 0;
    std::string rights;
    words >> std::hex >> region.begin >> dash >> region.end >> rights;
    const bool is_large = region.end - region.begin > kRegionBytesMax;
    const bool is_special = line.contains("[stack") || line.contains("[v");
    if (rights.starts_with("rw") && !is_large && !is_special) found.push_back(region);
  }
  return found;
}

// By the kernel's hands, so that no sanitizer minds whose memory it is.
class OwnMemory {
 public:
  // The copy of `mark` that is not the original: in the arena.
  [[nodiscard]] std::optional<std::uintptr_t> find_copy(std::span<const std::byte> mark) const {
    for (const Region& region : writable_memory()) {
      std::vector<std::byte> bytes(region.end - region.begin);
      const ssize_t count =
          ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(region.begin));
      if (count > 0) bytes.resize(static_cast<std::size_t>(count));
      const auto found = std::ranges::search(bytes, mark);
      const auto place = region.begin + static_cast<std::size_t>(found.begin() - bytes.begin());
      if (found.empty() || is_mine(place, mark, bytes)) continue;
      return place;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::byte byte_at(std::uintptr_t place) const {
    std::byte byte{};
    EXPECT_EQ(::pread(fd_.get(), &byte, 1, static_cast<off_t>(place)), 1);
    return byte;
  }

  void flip(std::uintptr_t place) const {
    const std::byte byte = byte_at(place) ^ std::byte{16};
    ASSERT_EQ(::pwrite(fd_.get(), &byte, 1, static_cast<off_t>(place)), 1);
  }

 private:
  // The original, or the buffer that it was just read into.
  static bool is_mine(std::uintptr_t place, std::span<const std::byte> mark,
                      std::span<const std::byte> buffer) {
    const auto buffer_begin = reinterpret_cast<std::uintptr_t>(buffer.data());
    return place == reinterpret_cast<std::uintptr_t>(mark.data()) ||
           (place >= buffer_begin && place < buffer_begin + buffer.size());
  }

  UniqueFd fd_{::open("/proc/self/mem", O_RDWR | O_CLOEXEC)};
};

Result<SaveHandle> save(Checkpointer& run, std::uint64_t step, std::span<const std::byte> state) {
  const TensorSpec spec{.key = "weights", .dtype = DType::kU8, .shape = {state.size()}};
  const auto handle = run.save({.step = step, .tensors = {{.spec = spec, .data = state}}});
  if (!handle) return std::unexpected(handle.error());
  return **handle;
}

TEST(ArenaFlip, IsFoundByWhoeverReads) {
  const ScopedDir dir;
  auto run = *Checkpointer::open(dir.path() / "run", {});
  const std::vector<std::byte> first = state_of(1);
  ASSERT_TRUE(save(run, 1, first)->wait(Level::kDurable, kDeadline));
  // Where the arena has it: the next save goes to the same place, and leaves no time to search.
  const OwnMemory memory;
  const auto copy = memory.find_copy(std::span(first).subspan(kBytes / 2, kMarkBytes));
  ASSERT_TRUE(copy.has_value());
  const std::vector<std::byte> second = state_of(2);
  ASSERT_TRUE(fail_points::arm("part.write=sleep:1000"));
  const auto handle = save(run, 2, second);
  ASSERT_TRUE(handle->wait(Level::kCaptured, kDeadline));
  fail_points::disarm();
  ASSERT_EQ(memory.byte_at(*copy), second[kBytes / 2]);
  memory.flip(*copy);
  ASSERT_TRUE(handle->wait(Level::kDurable, kDeadline));
  const auto infos = list_checkpoints(dir.path() / "run");
  ASSERT_EQ(infos->front().step, 2U);
  const auto faults = verify_checkpoint(infos->front());
  ASSERT_EQ(faults->size(), 1U);
  EXPECT_EQ(faults->front().blocks, std::vector<std::uint64_t>{kBytes / 2 / 65'536});
  std::vector<std::byte> found(kBytes);
  const auto report = restore_newest(run, std::array{RestoreTarget{"weights", found}});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->restored.step, 1U);
  EXPECT_TRUE(found == first);
}

}  // namespace
}  // namespace deepfreeze
