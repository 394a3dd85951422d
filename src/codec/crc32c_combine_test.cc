#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937_64 random(20261127);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32cCombine, IsTheChecksumOfOneAfterTheOther) {
  const std::vector<std::byte> bytes = random_bytes(3'000);
  const std::span<const std::byte> all(bytes);
  const std::uint32_t whole = crc32c(all);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    const auto tail = all.subspan(cut);
    ASSERT_EQ(crc32c_combine(crc32c(all.first(cut)), crc32c(tail), tail.size()), whole) << cut;
  }
}

TEST(Crc32cCombine, TakesManyPieces) {
  const std::vector<std::byte> bytes = random_bytes(100'000);
  const std::span<const std::byte> all(bytes);
  std::uint32_t crc = 0;
  std::size_t at = 0;
  for (std::size_t size = 0; at < all.size(); ++size) {
    const auto piece = all.subspan(at, std::min(size * 7, all.size() - at));
    crc = crc32c_combine(crc, crc32c(piece), piece.size());
    at += piece.size();
  }
  EXPECT_EQ(crc, crc32c(all));
}

// Zeros are appended in two ways: as one size of up to 63 bits, and as the two halves of it.
TEST(Crc32cCombine, TakesSizesThatNoMemoryHas) {
  const std::uint32_t crc = 0xe3069283;
  for (std::uint64_t half = 1; half < std::uint64_t{1} << 62U; half *= 3) {
    const std::uint32_t in_two = crc32c_combine(crc32c_combine(crc, 0, half), 0, half);
    ASSERT_EQ(crc32c_combine(crc, 0, 2 * half), in_two) << half;
  }
  EXPECT_NE(crc32c_combine(crc, 0, std::uint64_t{1} << 33U), crc32c_combine(crc, 0, 1));
}

}  // namespace
}  // namespace deepfreeze
