#include "codec/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace deepfreeze {
namespace {

std::uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

// RFC 3720, appendix B.4, and the customary check value.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
  std::array<std::byte, 32> bytes{};
  EXPECT_EQ(crc32c(bytes), 0x8a9136aaU);
  bytes.fill(std::byte{0xff});
  EXPECT_EQ(crc32c(bytes), 0x62a8ab43U);
  EXPECT_EQ(crc_of(""), 0U);
}

TEST(Crc32c, ExtendingGivesTheWhole) {
  const std::string_view text = "the whole path once";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t head = crc_of(text.substr(0, cut));
    EXPECT_EQ(crc32c_extend(head, std::as_bytes(std::span(text.substr(cut)))), crc_of(text));
  }
}

TEST(Crc32c, OfLinesIsThatOfEach) {
  std::array<std::byte, 1'000> memory{};
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * i + i / 7);
  std::array<const std::byte*, 16> lines{};
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = &memory[i * 53];  // not aligned
  for (std::size_t count = 0; count <= lines.size(); ++count) {
    std::array<std::uint32_t, 16> sums{};
    crc32c_of_lines(std::span(lines).first(count), sums);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(sums[i], i < count ? crc32c({lines[i], kCrcLineBytes}) : 0U);
    }
  }
}

TEST(Crc32c, ChangesWithEveryBit) {
  std::array<std::byte, 64> bytes{};
  const std::uint32_t clean = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(crc32c(bytes), clean) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace deepfreeze
