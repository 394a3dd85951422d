#include "codec/crc32c_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "base/thread_sanitizer.h"
#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::byte kUntouched{0x5a};

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

// Room for `bytes` bytes at an aligned place, with untouched bytes around it.
struct Target {
  explicit Target(std::size_t bytes, std::size_t misalignment = 0)
      : room(bytes + 3 * kAlignment, kUntouched), size(bytes) {
    void* begin = room.data() + 1;
    std::size_t space = room.size() - 1;
    offset =
        static_cast<std::size_t>(
            static_cast<std::byte*>(std::align(kAlignment, bytes, begin, space)) - room.data()) +
        misalignment;
  }
  std::span<std::byte> bytes() { return std::span(room).subspan(offset, size); }
  [[nodiscard]] bool is_clean_around() const {
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    const auto all = std::span(room);
    return std::ranges::all_of(all.first(offset), untouched) &&
           std::ranges::all_of(all.subspan(offset + size), untouched);
  }
  std::vector<std::byte> room;
  std::size_t size;
  std::size_t offset = 0;
};

void expect_copied(std::span<const std::byte> from, std::size_t misalignment) {
  Target target(from.size(), misalignment);
  EXPECT_EQ(copy_with_crc32c(from, target.bytes()), crc32c(from)) << from.size();
  EXPECT_TRUE(std::ranges::equal(target.bytes(), from)) << from.size();
  EXPECT_TRUE(target.is_clean_around()) << from.size();
}

TEST(Crc32cCopy, CopiesAndSumsWhateverSizeAndPlace) {
  const auto bytes = random_bytes(70'000, 1);
  const auto all = std::span<const std::byte>(bytes);
  for (std::size_t size = 0; size < 1100; ++size) expect_copied(all.subspan(size % 7, size), 0);
  for (const std::size_t size : {4096U, 65'520U, 65'536U, 65'791U}) {
    for (const std::size_t misalignment : {0U, 1U, 16U, 63U}) {
      expect_copied(all.subspan(misalignment, size), misalignment);
    }
  }
}

TEST(Crc32cCopy, SumChangesWithEveryBit) {
  auto bytes = random_bytes(1024, 2);
  Target target(bytes.size());
  const std::uint32_t clean = copy_with_crc32c(bytes, target.bytes());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(copy_with_crc32c(bytes, target.bytes()), clean) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

#if !DF_THREAD_SANITIZER
// The race is that of a torn capture; the sum must still be that of the stored bytes.
void expect_sum_of_what_was_stored(std::size_t size) {
  auto source = random_bytes(size, 3);
  Target target(size);
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> rounds_written{0};
  std::jthread writer([&] {
    for (std::uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
      rounds_written.store(round, std::memory_order_relaxed);
      for (std::size_t at = round % 7; at < source.size(); at += 7) {
        const std::atomic_ref<std::byte> byte(source[at]);
        byte.store(static_cast<std::byte>(round), std::memory_order_relaxed);
      }
    }
  });
  std::size_t wrong = 0;
  for (int round = 0; round < 2000 || rounds_written.load() < 1000; ++round) {
    wrong += copy_with_crc32c(source, target.bytes()) != crc32c(target.bytes()) ? 1 : 0;
  }
  stop = true;
  EXPECT_EQ(wrong, 0U) << size;
}

TEST(Crc32cCopy, SumIsOfWhatWasStoredWhileTheSourceChanges) {
  for (const std::size_t size : {200U, 256U + 255U, 65'536U, 65'536U + 255U}) {
    expect_sum_of_what_was_stored(size);
  }
}

// Spins, so that it goes on at once, but lets others run if its partner has no processor.
void wait_for(const std::atomic<std::uint32_t>& value, std::uint32_t round) {
  constexpr int kSpins = 1'000;
  for (int spins = 1; value.load(std::memory_order_acquire) < round; ++spins) {
    if (spins % kSpins == 0) std::this_thread::yield();
  }
}

// Stores past the caches wait in buffers of their own, which a later store does not wait for.
TEST(Crc32cCopy, WhoeverIsToldOfACopySeesAllOfIt) {
  constexpr std::size_t kBytes = 4096;
  constexpr std::uint32_t kRounds = 20'000;
  std::vector<std::byte> source(kBytes);
  Target target(kBytes);
  std::atomic<std::uint32_t> told{0};
  std::atomic<std::uint32_t> seen{0};
  std::uint32_t unseen = 0;
  std::jthread reader([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      wait_for(told, round);
      const auto last = target.bytes().subspan(kBytes - kAlignment);
      unseen += last[0] == static_cast<std::byte>(round) ? 0U : 1U;
      seen.store(round, std::memory_order_release);
    }
  });
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    std::ranges::fill(source, static_cast<std::byte>(round));
    std::ignore = copy_with_crc32c(source, target.bytes());
    told.store(round, std::memory_order_release);
    wait_for(seen, round);
  }
  reader.join();
  EXPECT_EQ(unseen, 0U);
}
#endif

}  // namespace
}  // namespace deepfreeze
