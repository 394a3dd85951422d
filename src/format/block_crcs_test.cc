#include "format/block_crcs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kSectionBytes = 3 * kBlockBytes + 1000;

std::vector<std::byte> random_section() {
  std::mt19937 random(20261128);
  std::vector<std::byte> data(kSectionBytes);
  std::ranges::generate(data, [&] { return static_cast<std::byte>(random()); });
  return data;
}

std::vector<std::uint32_t> crcs_of_section(std::span<const std::byte> data) {
  std::vector<std::uint32_t> crcs;
  for (std::uint64_t at = 0; at < data.size(); at += kBlockBytes) {
    crcs.push_back(
        crc32c(data.subspan(at, std::min<std::uint64_t>(kBlockBytes, data.size() - at))));
  }
  return crcs;
}

TEST(CrcOfBlocks, IsTheChecksumOfTheBytes) {
  const std::vector<std::byte> data = random_section();
  const std::vector<std::uint32_t> crcs = crcs_of_section(data);
  for (const Extent part :
       {Extent{0, kSectionBytes}, Extent{0, kBlockBytes}, Extent{kBlockBytes, 3 * kBlockBytes},
        Extent{2 * kBlockBytes, kSectionBytes}, Extent{3 * kBlockBytes, kSectionBytes}}) {
    const std::uint32_t wanted = crc32c(std::span(data).subspan(part.begin, part.size()));
    EXPECT_EQ(crc_of_blocks(crcs, part), wanted) << part.begin << ".." << part.end;
  }
}

TEST(CrcOfBlocks, OfNoBytesIsZero) {
  EXPECT_EQ(crc_of_blocks({}, {0, 0}), 0U);
  EXPECT_EQ(crc_of_blocks({}, {0, 0}), crc32c({}));
}

}  // namespace
}  // namespace deepfreeze
