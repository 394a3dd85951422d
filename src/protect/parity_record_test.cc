#include "protect/parity_record.h"

#include <functional>

#include "protect/protect_fixture.h"

namespace deepfreeze {
namespace {

struct Example {
  Manifest manifest;
  ParityRecord record;
};

Example make_example() {
  Example example;
  Manifest& manifest = example.manifest;
  manifest.run_id = "0123456789abcdef";
  manifest.point = {.generation = 2, .step = 70, .save_index = 5, .attempt_id = 0xabc};
  for (std::uint32_t rank = 0; rank < 6; ++rank) {
    const ManifestFile file{.name = sealed_file_name({.rank = rank, .world_size = 6}),
                            .bytes = 4096 + 1'000'000 * (rank + 1),
                            .header_crc = 17 + rank};
    manifest.files.push_back(file);
    if (rank % 2 == 0) example.record.members.push_back({.node = rank / 2, .files = {}});
    example.record.members.back().files.push_back(
        {.name = file.name, .bytes = file.bytes, .header_bytes = 4096, .header_crc = 17 + rank});
  }
  example.record.parity = 1;
  example.record.own = 2;
  example.record.chunk_bytes = chunk_bytes_for(example.record.members, 1);
  return example;
}

TEST(ParityRecord, ComesBackFromItsHeader) {
  const Example example = make_example();
  ShardHeader header = parity_header(example.record, example.manifest, 3).value();
  const EncodedHeader encoded = encode_header(header).value();
  std::uint32_t crc = 0;
  const auto decoded =
      decode_header(encoded.bytes, encoded.bytes.size() + header.data_bytes, crc).value();
  EXPECT_EQ(decode_parity(decoded, example.manifest).value(), example.record);
  EXPECT_EQ(decoded.identity.part.rank, 2U);
  EXPECT_EQ(decoded.entries.front().spec.key, "parity.0");
}

TEST(ParityRecord, ChunksHoldTheLongestMember) {
  const Example example = make_example();
  // Of the last member: two headers and 11 MB, in blocks, by two data pieces.
  const std::uint64_t blocks = 2 + (5'000'000 + 65'535) / 65'536 + (6'000'000 + 65'535) / 65'536;
  EXPECT_EQ(stream_bytes(example.record.members[2]), blocks * kBlockBytes);
  EXPECT_EQ(example.record.chunk_bytes, (blocks + 1) / 2 * kBlockBytes);
}

// A record that somebody has changed, with all checksums right.
void expect_corrupt(const std::function<void(Example&)>& change) {
  Example example = make_example();
  const Manifest manifest = example.manifest;
  change(example);
  const auto header = parity_header(example.record, example.manifest, 3);
  ASSERT_TRUE(header);
  const auto decoded = decode_parity(*header, manifest);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << decoded.error().message();
}

TEST(ParityRecord, OfAnotherCheckpointIsRefused) {
  expect_corrupt([](Example& e) { e.manifest.run_id = "1123456789abcdef"; });
  expect_corrupt([](Example& e) { e.manifest.point.step = 71; });
  expect_corrupt([](Example& e) { e.manifest.point.attempt_id = 1; });
}

TEST(ParityRecord, FilesThatTheManifestDoesNotListAreRefused) {
  const auto first = [](Example& e) -> MemberFile& { return e.record.members[0].files[0]; };
  expect_corrupt([&](Example& e) { first(e).name = "rank-00009-of-00010-0-of-1.safetensors"; });
  expect_corrupt([&](Example& e) { first(e).bytes += 1; });
  expect_corrupt([&](Example& e) { first(e).header_crc ^= 1; });
  expect_corrupt([&](Example& e) { e.record.members[1].files[0] = first(e); });
  expect_corrupt([&](Example& e) { first(e).header_bytes = 4097; });
  expect_corrupt([&](Example& e) { first(e).header_bytes = 0; });
  expect_corrupt([&](Example& e) { first(e).header_bytes = first(e).bytes + 1; });
}

TEST(ParityRecord, SizesThatDoNotFitAreRefused) {
  expect_corrupt([](Example& e) { e.record.chunk_bytes += kBlockBytes; });
  expect_corrupt([](Example& e) { e.record.chunk_bytes = 0; });
  expect_corrupt([](Example& e) { e.record.parity = 3; });
  expect_corrupt([](Example& e) { e.record.parity = 2; });
  Example example = make_example();
  ShardHeader header = parity_header(example.record, example.manifest, 3).value();
  header.data_bytes += kBlockBytes;
  EXPECT_FALSE(decode_parity(header, example.manifest));
}

TEST(ParityRecord, TextsThatAreNoRecordAreRefused) {
  const Example example = make_example();
  const ShardHeader good = parity_header(example.record, example.manifest, 3).value();
  for (const std::string_view part : {"\"parity\":1", "\"own\":2", "\"members\"", "\"node\":0",
                                      "\"version\":1", "\"header_bytes\":4096"}) {
    ShardHeader header = good;
    const std::size_t at = header.tree.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    header.tree[at + 1] = 'X';
    EXPECT_FALSE(decode_parity(header, example.manifest)) << part;
  }
  ShardHeader newer = good;
  newer.tree.replace(newer.tree.find("\"version\":1") + 10, 1, "2");
  EXPECT_EQ(decode_parity(newer, example.manifest).error().code(), ErrorCode::kUnsupported);
  ShardHeader outside = good;
  outside.tree.replace(outside.tree.find("\"own\":2") + 6, 1, "3");
  EXPECT_FALSE(decode_parity(outside, example.manifest));
}

}  // namespace
}  // namespace deepfreeze
