#include "format/packed_file.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

using Bytes = std::vector<std::byte>;

constexpr PackedLead kTwoBlocks{.header_bytes = kPageBytes, .data_bytes = kBlockBytes + 100};

PackedIndex index_of(std::vector<PackedBlock> blocks) {
  return {.blocks = std::move(blocks), .plain_crc = 0x12345678, .stored_crc = 0x9abcdef0};
}

std::uint64_t file_bytes_of(const PackedLead& lead, const PackedIndex& index) {
  std::uint64_t bytes = kPackedLeadBytes + lead.header_bytes;
  for (const PackedBlock& block : index.blocks) bytes += block.bytes;
  return bytes + encode_packed_index(lead, index).size();
}

// As a reader takes it: more than the index, if there is more.
Bytes tail_of(const PackedLead& lead, const PackedIndex& index) {
  const Bytes encoded = encode_packed_index(lead, index);
  Bytes tail(packed_index_bytes_max(lead) - encoded.size(), std::byte{0x77});
  tail.insert(tail.end(), encoded.begin(), encoded.end());
  return tail;
}

TEST(PackedLeads, ComeBack) {
  const Bytes page = encode_packed_lead(kTwoBlocks);
  EXPECT_TRUE(has_packed_mark(page));
  EXPECT_EQ(decode_packed_lead(page), kTwoBlocks);
}

TEST(PackedLeads, EveryFlippedBitIsFound) {
  const Bytes good = encode_packed_lead(kTwoBlocks);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes page = good;
    page[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto lead = decode_packed_lead(page);
    ASSERT_FALSE(lead) << bit;
    EXPECT_EQ(lead.error().code(), ErrorCode::kCorrupt) << bit;
  }
}

// Makes the checksum fit again.
Bytes resealed(Bytes page) {
  const std::uint32_t crc = crc32c(std::span(page).first(page.size() - 4));
  for (std::size_t i = 0; i < 4; ++i) {
    page[page.size() - 4 + i] = static_cast<std::byte>(crc >> (8 * i));
  }
  return page;
}

TEST(PackedLeads, ANewerVersionIsNamed) {
  Bytes page = encode_packed_lead(kTwoBlocks);
  page[8] = std::byte{2};
  const auto lead = decode_packed_lead(resealed(page));
  ASSERT_FALSE(lead);
  EXPECT_EQ(lead.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(lead.error().message().find("version 2"), std::string::npos);
}

TEST(PackedLeads, SizesThatNoFileHasAreRefused) {
  for (const PackedLead wrong :
       {PackedLead{0, 10}, PackedLead{100, 10}, PackedLead{kPageBytes * 100'000, 10},
        PackedLead{kPageBytes, std::uint64_t{1} << 63U}}) {
    const auto lead = decode_packed_lead(encode_packed_lead(wrong));
    ASSERT_FALSE(lead) << wrong.header_bytes << " " << wrong.data_bytes;
    EXPECT_EQ(lead.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(PackedIndexes, ComeBack) {
  const PackedIndex index = index_of({{.bytes = 50'000, .crc = 1}, {.bytes = 100, .crc = 2}});
  EXPECT_EQ(
      decode_packed_index(kTwoBlocks, file_bytes_of(kTwoBlocks, index), tail_of(kTwoBlocks, index)),
      index);
}

TEST(PackedIndexes, NoFileIsAsLongAsThePlainOne) {
  // Stored blocks that save exactly the bytes that lead and index add.
  const std::uint64_t added = kPackedLeadBytes + 16 + kPackedTrailerBytes;
  const auto first = static_cast<std::uint32_t>(kBlockBytes - added);
  const PackedIndex index = index_of({{.bytes = first, .crc = 1}, {.bytes = 100, .crc = 2}});
  const std::uint64_t file_bytes = file_bytes_of(kTwoBlocks, index);
  EXPECT_EQ(file_bytes, kTwoBlocks.plain_bytes() + kPackedPaddingBytes);
  EXPECT_EQ(decode_packed_index(kTwoBlocks, file_bytes, tail_of(kTwoBlocks, index)), index);
}

TEST(PackedIndexes, EveryFlippedBitIsFound) {
  const PackedIndex index = index_of({{.bytes = 50'000, .crc = 1}, {.bytes = 100, .crc = 2}});
  const std::uint64_t file_bytes = file_bytes_of(kTwoBlocks, index);
  const Bytes good = encode_packed_index(kTwoBlocks, index);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes tail = good;
    tail[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto decoded = decode_packed_index(kTwoBlocks, file_bytes, tail);
    ASSERT_FALSE(decoded) << bit;
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << bit;
  }
}

TEST(PackedIndexes, ThoseThatDoNotFitTheFileAreRefused) {
  const PackedIndex good = index_of({{.bytes = 50'000, .crc = 1}, {.bytes = 100, .crc = 2}});
  const std::uint64_t file_bytes = file_bytes_of(kTwoBlocks, good);
  const auto is_refused = [&](const PackedLead& lead, std::uint64_t bytes, const Bytes& tail) {
    const auto decoded = decode_packed_index(lead, bytes, tail);
    return !decoded && decoded.error().code() == ErrorCode::kCorrupt;
  };
  EXPECT_TRUE(is_refused(kTwoBlocks, file_bytes + 1, tail_of(kTwoBlocks, good)));
  EXPECT_TRUE(is_refused(kTwoBlocks, 0, tail_of(kTwoBlocks, good)));
  EXPECT_TRUE(is_refused(kTwoBlocks, file_bytes, {}));
  EXPECT_TRUE(is_refused({kPageBytes, kBlockBytes + 101}, file_bytes, tail_of(kTwoBlocks, good)));
  // Sealed, and wrong: blocks of no bytes, and of more than the plain ones.
  for (const std::uint32_t bytes : {0U, 101U}) {
    const PackedIndex wrong = index_of({{.bytes = 50'000, .crc = 1}, {.bytes = bytes, .crc = 2}});
    EXPECT_TRUE(
        is_refused(kTwoBlocks, file_bytes_of(kTwoBlocks, wrong), tail_of(kTwoBlocks, wrong)));
  }
}

}  // namespace
}  // namespace deepfreeze
