// Bits that flip in memory between the capture and the write: the checksum was taken from the
// copied bytes, so every reader finds the flip.
//
// DEEPFREEZE_ARENA_FLIPS is their number, DEEPFREEZE_ARENA_FLIP_SEED replays them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "deepfreeze/deepfreeze.h"
#include "support/number_from.h"
#include "support/scoped_dir.h"

namespace deepfreeze::arena_flip_test {
namespace {

constexpr std::size_t kBytes = 300'000;
constexpr std::size_t kMarkBytes = 64;
constexpr std::size_t kBlockBytes = 65'536;  // with a checksum of its own
constexpr std::uint64_t kFlipsQuick = DF_ARENA_FLIPS;
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

// Accesses memory through the kernel, so that no sanitizer minds whose memory it is.
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

  void flip(std::uintptr_t place, std::uint64_t bit) const {
    const std::byte byte = byte_at(place) ^ static_cast<std::byte>(1U << bit);
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

// A run whose saves go to the same place in memory, each with one bit that flips before the write.
class ArenaFlip : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([](std::string_view) {});  // it warns when it falls back
    auto opened = Checkpointer::open(dir_.path() / "run", {.keep = {.last = 2}});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    run_.emplace(*std::move(opened));
    first_ = state_of(1);
    ASSERT_TRUE(save(*run_, 1, first_)->wait(Level::kDurable, kDeadline));
    // The later saves go to the same place, and leave no time to search.
    const auto mark = std::span(first_).subspan(kBytes / 2, kMarkBytes);
    const auto copy = memory_.find_copy(mark);
    ASSERT_TRUE(copy.has_value());
    arena_ = *copy - kBytes / 2;
  }
  void TearDown() override {
    fail_points::disarm();
    set_log_sink({});
  }

  // The write waits at a fail point for as long as the flip takes.
  void save_and_flip(std::uint64_t step, std::size_t byte, std::uint64_t bit) {
    const std::vector<std::byte> state = state_of(step);
    fail_points::start_recording();
    ASSERT_TRUE(fail_points::arm("part.write=after:flipped"));
    const auto handle = save(*run_, step, state);
    ASSERT_TRUE(handle.has_value()) << handle.error().message();
    ASSERT_TRUE(handle->wait(Level::kCaptured, kDeadline));
    ASSERT_EQ(memory_.byte_at(arena_ + byte), state[byte]);
    memory_.flip(arena_ + byte, bit);
    ASSERT_TRUE(fail_points::pass("flipped"));
    ASSERT_TRUE(handle->wait(Level::kDurable, kDeadline));
    fail_points::disarm();
  }

  // A full check finds the flip, in its block; a restore returns the step before.
  void expect_found(std::uint64_t step, std::size_t byte) {
    const auto infos = list_checkpoints(dir_.path() / "run");
    ASSERT_TRUE(infos.has_value()) << infos.error().message();
    ASSERT_EQ(infos->front().step, step);
    const auto faults = verify_checkpoint(infos->front());
    ASSERT_TRUE(faults.has_value()) << faults.error().message();
    ASSERT_EQ(faults->size(), 1U);
    EXPECT_EQ(faults->front().blocks, std::vector<std::uint64_t>{byte / kBlockBytes});
    std::vector<std::byte> found(kBytes);
    const auto report = restore_newest(*run_, std::array{RestoreTarget{"weights", found}});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->restored.step, step - 1);
    EXPECT_TRUE(found == state_of(step - 1));
  }

  ScopedDir dir_;
  const OwnMemory memory_;
  std::optional<Checkpointer> run_;
  std::vector<std::byte> first_;
  std::uintptr_t arena_ = 0;  // the address of the first byte of "weights" in it
};

TEST_F(ArenaFlip, IsFoundByWhoeverReads) {
  const std::uint64_t seed = number_from("DEEPFREEZE_ARENA_FLIP_SEED", std::random_device()());
  const std::uint64_t flips = number_from("DEEPFREEZE_ARENA_FLIPS", kFlipsQuick);
  std::mt19937_64 random(seed);
  for (std::uint64_t flip = 1; flip <= flips; ++flip) {
    const std::size_t byte = random() % kBytes;
    const std::uint64_t bit = random() % 8;
    SCOPED_TRACE(fmt::format("DEEPFREEZE_ARENA_FLIP_SEED={}, flip {}: bit {} of byte {}", seed,
                             flip, bit, byte));
    const std::uint64_t step = 2 * flip;
    if (flip > 1) {
      ASSERT_TRUE(save(*run_, step - 1, state_of(step - 1))->wait(Level::kDurable, kDeadline));
    }
    ASSERT_NO_FATAL_FAILURE(save_and_flip(step, byte, bit));
    ASSERT_NO_FATAL_FAILURE(expect_found(step, byte));
    ASSERT_FALSE(HasFailure());  // the first one tells most
  }
  fmt::print("{} bits of the arena flipped, each found in its block, seed {}\n", flips, seed);
}

}  // namespace
}  // namespace deepfreeze::arena_flip_test
