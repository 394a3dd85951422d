#include "format/shard_header.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "format/header_fixture.h"
#include "format/header_parts.h"
#include "format/header_ranges.h"
#include "format/state_tree.h"
#include "format/tree_text.h"

namespace deepfreeze {
namespace {

Result<ShardHeader> decode(const std::vector<std::byte>& bytes, std::uint64_t data_bytes,
                           std::uint32_t* crc = nullptr) {
  std::uint32_t own_crc = 0;
  return decode_header(bytes, bytes.size() + data_bytes, crc == nullptr ? own_crc : *crc);
}

// Before any checksum is known.
std::uint64_t foretold_bytes(const ShardHeader& header) {
  const auto tree = write_tree(header.tree, kTreeBytesMax);
  const AuditText audit = write_audit(header.audit);
  return *encoded_header_bytes(
      {.identity = header.identity,
       .annotations = header.annotations,
       .tree_member = tree->members.empty() ? "" : tree->members.front(),
       .table = *write_table(header.entries, header.data_bytes, header.ranges.has_value()),
       .audit = &audit,
       .link_count = header.links.size()});
}

// The decoded header equals the stored one, and its size was known before.
void expect_round_trip(const ShardHeader& header) {
  const auto encoded = encode_header(header);
  ASSERT_TRUE(encoded.has_value()) << encoded.error().message();
  EXPECT_EQ(encoded->bytes.size() % kPageBytes, 0U);
  EXPECT_EQ(foretold_bytes(header), encoded->bytes.size());
  std::uint32_t crc = 0;
  const auto decoded = decode(encoded->bytes, header.data_bytes, &crc);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, header);
  EXPECT_EQ(crc, encoded->crc);
}

std::string refusal(const ShardHeader& header) {
  const auto encoded = encode_header(header);
  if (encoded) return "accepted";
  EXPECT_EQ(encoded.error().code(), ErrorCode::kInvalidArgument);
  return encoded.error().message();
}

LinkedFile link_of(std::uint32_t file) {
  return {.file = file,
          .header_crc = 0xc01df11e,
          .origin = Origin{.run_id = "00000000000000a1",
                           .point = {.generation = 2,
                                     .step = UINT64_MAX,
                                     .save_index = 7,
                                     .attempt_id = 0x9f2c41d07a3be856}}};
}

class RandomHeaders {
 public:
  explicit RandomHeaders(std::uint64_t seed) : random_(seed) {}

  ShardHeader next() {
    ShardHeader header = small_header();
    header.identity.step = random_() >> random_() % 64;
    header.annotations.metrics = {{text(), metric()}, {text(), metric()}};
    header.tree = random_() % 2 == 0 ? "" : text();
    header.entries.clear();
    header.data_bytes = 0;
    for (std::uint64_t i = random_() % 20; i > 0; --i) add(header, fmt::format("{}{}", i, text()));
    header.block_crcs.resize(block_count(header.data_bytes));
    for (std::uint32_t& crc : header.block_crcs) crc = static_cast<std::uint32_t>(random_());
    if (random_() % 2 == 0) header.ranges = ranges(header.entries);
    return header;
  }

 private:
  std::string text() {
    constexpr std::string_view kPieces[] = {"a",    "\"", "\\", "\n", "\x01",
                                            "\x7f", "é",  "🧊", "{",  " "};
    std::string text;
    for (std::uint64_t i = 1 + random_() % 12; i > 0; --i) text += kPieces[random_() % 10];
    return text;
  }

  double metric() {
    const double value = std::bit_cast<double>(random_());
    return std::isfinite(value) ? value : 0.5;
  }

  std::vector<ValueRange> ranges(const std::vector<ShardEntry>& entries) {
    std::vector<ValueRange> all;
    for (const ShardEntry& entry : entries) {
      if (!is_floating_point(entry.spec.dtype)) continue;
      const std::uint64_t elements = entry.extent.size() / dtype_bytes(entry.spec.dtype);
      ValueRange& range = all.emplace_back();
      range.non_finite = random_() % (elements + 1);
      range.finite = elements - range.non_finite;
      if (range.finite == 0) continue;
      range.min = metric();
      range.max = std::max(range.min, metric());
    }
    return all;
  }

  void add(ShardHeader& header, std::string key) {
    TensorSpec spec{.key = std::move(key), .dtype = static_cast<DType>(random_() % 15)};
    for (std::uint64_t i = random_() % 4; i > 0; --i) spec.shape.push_back(random_() % 40);
    if (random_() % 3 == 0) spec.logical_dtype = text();
    if (random_() % 3 == 0) {
      spec.box = Box{.offset = spec.shape, .extent = spec.shape};
      for (const std::uint64_t size : spec.shape) spec.global_shape.push_back(2 * size);
    }
    const std::uint64_t end = header.data_bytes + *spec_bytes(spec);
    header.entries.push_back({.spec = std::move(spec), .extent = {header.data_bytes, end}});
    header.data_bytes = end;
  }

  std::mt19937_64 random_;
};

TEST(ShardHeader, HasALinkForEachFileThatMayBeAnotherAttempts) {
  ShardHeader header = small_header();
  header.links = {link_of(1), {.file = 2, .header_crc = 0, .origin = {}}};
  expect_round_trip(header);
  const auto linked = encode_header(header)->bytes.size();
  for (LinkedFile& link : header.links) link = {.file = link.file, .header_crc = 0, .origin = {}};
  expect_round_trip(header);
  EXPECT_EQ(encode_header(header)->bytes.size(), linked) << "known before it is decided";
}

TEST(ShardHeader, RoundTrips) { expect_round_trip(small_header()); }

TEST(ShardHeader, RangesAreThoseOfItsTensorsOrAbsent) {
  ShardHeader header = small_header();
  EXPECT_EQ(non_finite_values(header), std::nullopt);
  header.ranges = {{.min = -1.5, .max = 2, .finite = 9, .non_finite = 3}, {.non_finite = 1}};
  expect_round_trip(header);
  EXPECT_EQ(non_finite_values(header), 4U);
  header.ranges->pop_back();
  EXPECT_EQ(refusal(header), "header: 1 ranges for 2 tensors");
}

TEST(ShardHeader, RoundTripsWithNothingInIt) {
  expect_round_trip({.identity = {.run_id = "0000000000000000"}});
}

TEST(ShardHeader, RoundTripsWhateverItHolds) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  RandomHeaders headers(seed);
  for (int round = 0; round < 300; ++round) expect_round_trip(headers.next());
}

// How many files these are; none of several tensors takes more than the budget.
std::size_t expect_within(const HeaderBudget& budget, const std::vector<ShardEntry>& entries) {
  const auto tables = write_tables(entries, budget);
  EXPECT_TRUE(tables) << tables.error().message();
  std::size_t count = 0;
  for (const TableText& table : *tables) {
    const std::uint64_t bytes = table.members.size() + table.extras.size() +
                                kCrcDigits * block_count(table.data_bytes) +
                                kRangeDigits * table.range_count.value_or(0);
    EXPECT_TRUE(bytes <= budget.table_bytes || table.entries.size() == 1) << bytes;
    count += table.entries.size();
  }
  EXPECT_EQ(count, entries.size());
  return tables->size();
}

TEST(WriteTables, NoFileTakesMoreThanTheBudget) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  RandomHeaders headers(seed);
  for (std::uint64_t round = 0; round < 300; ++round) {
    expect_within({.table_bytes = 500 + 10 * round, .with_ranges = round % 2 == 0},
                  headers.next().entries);
  }
}

TEST(WriteTables, RefusesAnEntryWhoseExtentIsNotItsShapes) {
  const auto tables = write_tables({entry("a", {1}, 0, 4), entry("b", {2}, 4, 8)}, {});
  ASSERT_FALSE(tables.has_value());
  EXPECT_TRUE(tables.error().message().contains("\"b\"")) << tables.error().message();
}

// Torch's readers want each key again if one tensor of the file is a part.
TEST(WriteTables, KeysCountAgainWhereATensorHasABox) {
  std::vector<ShardEntry> entries;
  for (std::uint64_t i = 0; i < 40; ++i) {
    entries.push_back(entry(std::string(1'000, 'k') + std::to_string(i), {1}, 4 * i, 4 * i + 4));
  }
  EXPECT_EQ(expect_within({.table_bytes = 12'000}, entries), 4U);
  entries.front().spec.box = Box{.offset = {2}, .extent = {1}};
  entries.front().spec.global_shape = {3};
  EXPECT_GT(expect_within({.table_bytes = 12'000}, entries), 4U);
}

TEST(ShardHeader, RoundTripsTenThousandTensors) {
  ShardHeader header = small_header();
  header.entries.clear();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    header.entries.push_back(
        entry(fmt::format("model.layer.{}.weight", i), {256, 16}, i << 14, (i + 1) << 14));
  }
  header.data_bytes = 10'000ULL << 14;
  header.block_crcs.assign(block_count(header.data_bytes), 0x01234567);
  expect_round_trip(header);
}

// Padding to a page would hide that a part is not counted.
TEST(ShardHeader, EveryPartCountsForItsSize) {
  const std::string page(kPageBytes, 'x');
  const auto expect_grown = [&](auto change) {
    ShardHeader header = small_header();
    change(header);
    EXPECT_GT(foretold_bytes(header), foretold_bytes(small_header()));
    expect_round_trip(header);
  };
  expect_grown([&](ShardHeader& header) { header.annotations.tags["why"] = page; });
  expect_grown([&](ShardHeader& header) { header.tree = page; });
  expect_grown([&](ShardHeader& header) { header.entries[0].spec.logical_dtype = page; });
  expect_grown([&](ShardHeader& header) { header.entries[1].spec.key = page.substr(1); });
  expect_grown([&](ShardHeader& header) {
    header.entries[1] = entry("scale", {512 * kBlockBytes / 4}, 48, 48 + 512 * kBlockBytes);
    header.data_bytes = 48 + 512 * kBlockBytes;
    header.block_crcs.assign(block_count(header.data_bytes), 7);
  });
}

TEST(ShardHeader, KeepsWhatWasAudited) {
  ShardHeader header = small_header();
  header.audit = {{"scale", {}, 0, 4, 0}, {"model.\"weight\"", {8, 0}, 1 << 20, 7, 0xfedcba98}};
  expect_round_trip(header);
}

TEST(ShardHeader, HasRoomForAnAuditOfALimitedSize) {
  const std::vector<AuditRecord> many(2 * kAuditRecordsMax, {.key = "w", .bytes = 1});
  EXPECT_EQ(write_audit(many).count, kAuditRecordsMax);
  const std::vector<AuditRecord> wordy(1'000, {.key = std::string(4'000, 'k'), .bytes = 1});
  const AuditText text = write_audit(wordy);
  EXPECT_LE(text.member.size(), kAuditListBytesMax + 4'000);
  EXPECT_EQ(text.count, 99U);
  EXPECT_EQ(write_audit({}).member, "");
}

TEST(EncodeHeader, WantsAChecksumForEachRecordOfAnAudit) {
  const ShardHeader header = small_header();
  const AuditText audit = write_audit(std::vector<AuditRecord>{{.key = "w", .bytes = 4}});
  const auto encoded = encode_header({.identity = header.identity,
                                      .annotations = header.annotations,
                                      .tree_member = {},
                                      .table = *write_table(header.entries, 52, false),
                                      .audit = &audit},
                                     {.block_crcs = header.block_crcs});
  ASSERT_FALSE(encoded);
  EXPECT_EQ(encoded.error().message(), "header: 0 checksums for 1 records of an audit");
}

TEST(ShardHeader, KeepsMetricsThatAreNotNumbers) {
  ShardHeader header = small_header();
  header.annotations.metrics = {{"nan", std::nan("")}, {"inf", -INFINITY}, {"zero", -0.0}};
  const auto decoded = decode(encode_header(header)->bytes, header.data_bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_TRUE(std::isnan(decoded->annotations.metrics.at("nan")));
  EXPECT_EQ(decoded->annotations.metrics.at("inf"), -INFINITY);
  EXPECT_TRUE(std::signbit(decoded->annotations.metrics.at("zero")));
}

TEST(ShardHeader, BeginsWithItsChecksumAtAFixedPlace) {
  const auto encoded = encode_header(small_header());
  const std::string json = json_of(encoded->bytes);
  EXPECT_TRUE(json.starts_with(R"({"__metadata__":{"deepfreeze.crc32c":")" + hex32(encoded->crc) +
                               R"(","format":"pt","deepfreeze.version":"1",)"));
}

TEST(EncodeHeader, RefusesWhatNoReaderWouldTake) {
  ShardHeader header = small_header();
  header.entries[1].spec.key = "model.weight";
  EXPECT_EQ(refusal(header), "header: tensor \"model.weight\": its key is used twice");
  header.entries[1].spec.key = "__metadata__";
  EXPECT_EQ(refusal(header), "tensor \"__metadata__\": the file format reserves this key");
  header = small_header();
  header.block_crcs.push_back(0);
  EXPECT_EQ(refusal(header), "header: 2 block checksums for 1 blocks");
  header = small_header();
  header.entries[1].extent = {.begin = 44, .end = 48};
  EXPECT_EQ(refusal(header), "tensor \"scale\" begins at 44, but 48 is next in the data section");
  header = small_header();
  header.entries[1].extent.end = 47;
  EXPECT_EQ(refusal(header), "tensor \"scale\" lies from 48 to 47, but its shape has 4 bytes");
  header = small_header();
  header.data_bytes = 53;
  EXPECT_EQ(refusal(header), "the tensors end at 52 of 53 bytes of data");
}

TEST(EncodeHeader, RefusesTextsThatAreNotUtf8AndNamesThatAreNotOurs) {
  ShardHeader header = small_header();
  header.tree = "\"\xff\"";
  EXPECT_EQ(refusal(header), "header: the state tree is not UTF-8");
  header = small_header();
  header.annotations.tags["\xff"] = "";
  EXPECT_EQ(refusal(header), "header: a tag or environment entry is not UTF-8");
  header = small_header();
  header.annotations.metrics["\xff"] = 0;
  EXPECT_NE(refusal(header), "accepted");
  header = small_header();
  header.annotations.parent->run = "\xff";
  EXPECT_NE(refusal(header), "accepted");
  header = small_header();
  header.identity.run_id = "0123456789ABCDEF";
  EXPECT_EQ(refusal(header), "header: \"0123456789ABCDEF\" is not a run id");
  header = small_header();
  header.identity.part.rank = 4;
  EXPECT_NE(refusal(header), "accepted");
  header = small_header();
  header.identity.part.file = 1;
  EXPECT_EQ(refusal(header), "header: its rank or file number is not below the count");
  header = small_header();
  header.annotations.environment["torch"] = "\xff";
  EXPECT_EQ(refusal(header), "header: a tag or environment entry is not UTF-8");
}

// A save must fail before it captures anything.
TEST(EncodeHeader, TheSizeIsRefusedWhereTheHeaderWouldBe) {
  ShardHeader header = small_header();
  header.identity.part.file = 1;
  const HeaderParts parts{.identity = header.identity,
                          .annotations = header.annotations,
                          .tree_member = {},
                          .table = {}};
  const auto bytes = encoded_header_bytes(parts);
  ASSERT_FALSE(bytes.has_value());
  EXPECT_EQ(bytes.error().message(), refusal(header));
}

TEST(EncodeHeader, RefusesMoreThanTheStrictestReaderTakes) {
  ShardHeader header{.identity = {.run_id = "0123456789abcdef"}};
  for (std::uint64_t i = 0; i < 7'000; ++i) {
    header.entries.push_back(entry(std::string(4000, 'k') + std::to_string(i), {0}, 0, 0));
  }
  EXPECT_TRUE(refusal(header).contains("more than 25000000")) << refusal(header);
}

}  // namespace
}  // namespace deepfreeze
