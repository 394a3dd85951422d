#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>

#include "base/hex.h"
#include "format/header_text.h"
#include "format/shard_header.h"

namespace deepfreeze {
namespace {

ShardHeader small_header() {
  ShardHeader header;
  header.identity = {.run_id = "00112233445566aa",
                     .attempt_id = 0x9f2c41d07a3be856,
                     .generation = 2,
                     .step = 100,
                     .save_index = 7,
                     .part = {0, 1, 0, 1}};
  header.annotations = {.wall_micros = 1'700'000'000'000'000,
                        .metrics = {{"loss", 0.1}, {"zero", -0.0}, {"inf", -INFINITY}},
                        .tags = {{"note", "quoted \" and \n"}},
                        .environment = {{"torch", "2.13.0"}},
                        .parent = ParentPoint{"runs/a", 50}};
  header.tree = R"({"lr":0.5,"name":"a\"b"})";
  header.entries = {
      {.spec = {.key = "w", .dtype = DType::kF32, .shape = {16384, 1}}, .extent = {0, 65536}},
      {.spec =
           {.key = "z\x01\"", .dtype = DType::kF32, .shape = {3, 2}, .logical_dtype = "complex64"},
       .extent = {65536, 65560}},
      {.spec = {.key = "part",
                .dtype = DType::kU8,
                .shape = {2, 1},
                .box = Box{{4, 0}, {2, 1}},
                .global_shape = {8, 1}},
       .extent = {65560, 65562}},
      {.spec = {.key = "empty", .dtype = DType::kI64, .shape = {0, 5}}, .extent = {65562, 65562}}};
  header.data_bytes = 65562;
  header.block_crcs = {0xdeadbeef, 0x00000001};
  return header;
}

Result<ShardHeader> decode(std::span<const std::byte> bytes, std::uint64_t data_bytes) {
  std::uint32_t crc = 0;
  return decode_header(bytes, bytes.size() + data_bytes, crc);
}

// Encodes a header of which one thing is wrong; its CRC is right.
std::string refusal(const ShardHeader& header) {
  const auto encoded = encode_header(header);
  EXPECT_TRUE(encoded.has_value());
  const auto decoded = decode(encoded->bytes, header.data_bytes);
  return decoded ? "accepted" : decoded.error().message();
}

// Replaces text inside an encoded header, keeps its length, and makes the CRC right again.
std::vector<std::byte> edited(std::vector<std::byte> bytes, std::string_view from,
                              std::string_view to) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  text.replace(at, from.size(), to);
  const auto crc = header_crc(std::as_bytes(std::span(text)));
  text.replace(kCrcOffset, kCrcDigits, hex32(crc));
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(Header, RoundTrips) {
  const ShardHeader header = small_header();
  const auto encoded = encode_header(header);
  ASSERT_TRUE(encoded.has_value());
  EXPECT_EQ(encoded->bytes.size() % kPageBytes, 0U);
  std::uint32_t crc = 0;
  const auto decoded =
      decode_header(encoded->bytes, encoded->bytes.size() + header.data_bytes, crc);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, header);
  EXPECT_TRUE(std::signbit(decoded->annotations.metrics.at("zero")));
  EXPECT_EQ(crc, encoded->crc);
  EXPECT_EQ(header_size(std::span(encoded->bytes).first(8), encoded->bytes.size()),
            encoded->bytes.size());
}

TEST(Header, NanStaysNan) {
  ShardHeader header = small_header();
  header.annotations.metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}};
  const auto encoded = encode_header(header);
  const auto decoded = decode(encoded->bytes, header.data_bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_TRUE(std::isnan(decoded->annotations.metrics.at("loss")));
}

TEST(Header, ItsSizeDoesNotDependOnChecksums) {
  ShardHeader header = small_header();
  const auto before = encode_header(header)->bytes.size();
  header.block_crcs = {0, 0};
  EXPECT_EQ(encode_header(header)->bytes.size(), before);
}

TEST(Header, TheSameInputGivesTheSameBytesInEveryVersion) {
  const auto encoded = encode_header(small_header());
  const std::string path = std::string(DF_GOLDEN_DIR) + "/header.bin";
  std::ifstream file(path, std::ios::binary);
  const std::string golden((std::istreambuf_iterator<char>(file)), {});
  const std::string_view text(reinterpret_cast<const char*>(encoded->bytes.data()),
                              encoded->bytes.size());
  EXPECT_EQ(golden, text) << "a changed format needs a new version and a new golden file: " << path;
}

TEST(Header, EverySingleFlippedBitIsFound) {
  const ShardHeader header = small_header();
  std::vector<std::byte> bytes = encode_header(header)->bytes;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_FALSE(decode(bytes, header.data_bytes).has_value()) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Header, EveryTruncationIsFound) {
  const ShardHeader header = small_header();
  const std::vector<std::byte> bytes = encode_header(header)->bytes;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_FALSE(decode(std::span(bytes).first(length), header.data_bytes).has_value()) << length;
  }
  EXPECT_FALSE(decode(bytes, header.data_bytes - 1).has_value());
  EXPECT_FALSE(decode(bytes, header.data_bytes + 1).has_value());
}

TEST(Header, AFileWhoseHeaderWasNeverWrittenIsRefused) {
  const std::vector<std::byte> zeros(kPageBytes);
  EXPECT_EQ(header_size(std::span(zeros).first(8), 1 << 20).error().message(),
            "header: it was never written");
  EXPECT_FALSE(decode(zeros, 0).has_value());
}

TEST(Header, ALengthThatCantBeIsRefusedBeforeAnythingIsRead) {
  for (const std::uint64_t length : {~0ULL, ~0ULL - 7, 1ULL << 40, 4096ULL, 4087ULL}) {
    std::vector<std::byte> first8(8);
    std::memcpy(first8.data(), &length, 8);
    EXPECT_FALSE(header_size(first8, 1 << 20).has_value()) << length;
  }
}

TEST(Header, HolesOverlapsAndWrongSizesAreRefused) {
  ShardHeader header = small_header();
  header.entries[1].extent = {65540, 65564};
  EXPECT_NE(refusal(header).find("hole or overlap"), std::string::npos);
  header = small_header();
  header.entries[1].extent = {65536, 65568};
  EXPECT_NE(refusal(header).find("bytes where its shape has"), std::string::npos);
  header = small_header();
  header.entries[0].spec.shape = {1ULL << 40, 1ULL << 40};
  EXPECT_NE(refusal(header).find("64 bits"), std::string::npos);
  header = small_header();
  header.entries.pop_back();
  header.entries.pop_back();
  EXPECT_NE(refusal(header).find("of data"), std::string::npos);
}

TEST(Header, ForgedTextIsRefusedThoughItsChecksumIsRight) {
  const ShardHeader header = small_header();
  const auto bytes = encode_header(header)->bytes;
  const auto refused = [&](std::string_view from, std::string_view to) {
    return !decode(edited(bytes, from, to), header.data_bytes).has_value();
  };
  EXPECT_FALSE(refused("2.13.0", "2.13.1"));  // a control: the edit itself is not what is refused
  EXPECT_TRUE(refused("\"empty\":{\"dtype\":\"I64\"", "\"w\":{   \"dtype\"  :\"I64\""));
  EXPECT_TRUE(refused("\"dtype\":\"U8\"", "\"dtype\":\"U9\""));
  EXPECT_TRUE(refused("deadbeef", "deadbeeg"));
  EXPECT_TRUE(refused("\"shape\":[2,1]", "\"shape\":[2.]"));
  EXPECT_TRUE(refused("\"shape\":[2,1]", "\"shape\":[-2]"));
}

TEST(Header, ANewerVersionIsUnsupportedNotCorrupt) {
  const ShardHeader header = small_header();
  const auto newer = edited(encode_header(header)->bytes, "\"deepfreeze.version\":\"1\"",
                            "\"deepfreeze.version\":\"2\"");
  const auto decoded = decode(newer, header.data_bytes);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code(), ErrorCode::kUnsupported);
}

TEST(Header, TooManyTensorsForEveryReaderAreRefused) {
  ShardHeader header = small_header();
  header.tree = "\"" + std::string(kHeaderBytesMax, 'x') + "\"";
  EXPECT_EQ(encode_header(header).error().code(), ErrorCode::kInvalidArgument);
}

// Ten thousand tensors with arbitrary keys.
TEST(Header, RandomKeysAndShapesRoundTrip) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed=" + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 10'000; ++i) {
    std::string key = std::to_string(i);
    for (unsigned c = random() % 8; c > 0; --c) key += static_cast<char>(random() % 127 + 1);
    specs.push_back({.key = key,
                     .dtype = static_cast<DType>(random() % 15),
                     .shape = {random() % 5, random() % 3 + 1}});
  }
  const auto layout = lay_out(specs);
  ShardHeader header = small_header();
  header.entries.clear();
  for (const std::size_t i : layout->order) {
    if (layout->extents[i].size() > 0) header.entries.push_back({specs[i], layout->extents[i]});
  }
  header.data_bytes = layout->data_bytes;
  header.block_crcs.assign(block_count(header.data_bytes), seed);
  const auto decoded = decode(encode_header(header)->bytes, header.data_bytes);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, header);
}

}  // namespace
}  // namespace deepfreeze
