// Files that versions 1 and 2 wrote. They never change: a reader of them must exist for ever.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "codec/crc32c.h"
#include "format/header_fixture.h"
#include "format/records.h"

namespace deepfreeze {
namespace {

std::string golden(const std::string& name, const std::string& version = "v1") {
  std::ifstream file(std::string(DF_GOLDEN_DIR) + "/" + version + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The file's data, and the header that fits it.
std::string golden_data() {
  std::string data(52, '\0');
  for (std::size_t i = 0; i < 13; ++i) {
    const float value = static_cast<float>(i) / 8;
    std::memcpy(data.data() + 4 * i, &value, 4);
  }
  return data;
}

ShardHeader golden_header() {
  const std::string data = golden_data();
  ShardHeader header = small_header();
  header.block_crcs = {crc32c(std::as_bytes(std::span(data)))};
  return header;
}

Point golden_point() {
  const Identity identity = small_header().identity;
  return {.generation = identity.generation,
          .step = identity.step,
          .save_index = identity.save_index,
          .attempt_id = identity.attempt_id};
}

Manifest golden_manifest() {
  Manifest manifest{.run_id = small_header().identity.run_id,
                    .point = golden_point(),
                    .world_size = 4,
                    .annotations = small_header().annotations};
  manifest.annotations.metrics["best"] = std::numeric_limits<double>::infinity();
  manifest.files = {{.name = sealed_file_name(small_header().identity.part),
                     .bytes = 4148,
                     .header_crc = 0xb973199a}};
  return manifest;
}

GenerationRecord golden_generation() {
  return {.run_id = small_header().identity.run_id,
          .generation = 3,
          .claimant = 0x00c0ffee00c0ffee,
          .resumed_from = golden_point(),
          .wall_micros = 1'700'000'000'000'000};
}

// A job whose nodes have near tiers of their own.
GenerationRecord golden_generation_of_a_node() {
  GenerationRecord record = golden_generation();
  record.generation = 4;
  record.node = 0x00d15c00d15c00d1;
  return record;
}

RunRecord golden_run() {
  return {.run_id = small_header().identity.run_id,
          .parent = small_header().annotations.parent,
          .wall_micros = 1'700'000'000'000'000};
}

std::string shard_file() {
  const auto bytes = encode_header(golden_header())->bytes;
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + golden_data();
}

// A rank's first file, whose second one is that of the save before; and the manifest of both.
ShardHeader golden_linking_header() {
  ShardHeader header = golden_header();
  header.identity.part.file_count = 2;
  header.links = {
      {.file = 1,
       .header_crc = 0xc01df11e,
       .origin = Origin{
           .run_id = header.identity.run_id,
           .point = {
               .generation = 2, .step = 90, .save_index = 6, .attempt_id = 0x0c01d0c01d0c01d0}}}};
  return header;
}

Manifest golden_sharing_manifest() {
  const ShardHeader header = golden_linking_header();
  Manifest manifest = golden_manifest();
  PartName part = header.identity.part;
  manifest.files.front().name = sealed_file_name(part);
  part.file = 1;
  manifest.files.push_back({.name = sealed_file_name(part),
                            .bytes = 16'781'312,
                            .header_crc = header.links.front().header_crc,
                            .origin = header.links.front().origin});
  return manifest;
}

std::string linking_header() {
  const auto bytes = encode_header(golden_linking_header())->bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr const char* kBeforeShardingInfo = "rank-00001-of-00004-0-of-1.safetensors";
constexpr const char* kShard = "sharding-info.safetensors";

TEST(GoldenFiles, AreWrittenByteForByte) {
  const std::pair<const char*, std::string> files[] = {
      {kShard, shard_file()},
      {"deepfreeze.json", encode_run(golden_run())},
      {"generation-00000003.json", encode_generation(golden_generation())},
      {"generation-00000004.json", encode_generation(golden_generation_of_a_node())},
      {"manifest.json", encode_manifest(golden_manifest())}};
  for (const auto& [name, text] : files) {
    std::ofstream(testing::TempDir() + "/" + name, std::ios::binary) << text;
    EXPECT_EQ(golden(name), text) << name << "; what was written is in " << testing::TempDir();
  }
}

TEST(GoldenFiles, OfVersion2AreWrittenByteForByte) {
  const std::pair<const char*, std::string> files[] = {
      {"linking-header", linking_header()},
      {"manifest.json", encode_manifest(golden_sharing_manifest())}};
  for (const auto& [name, text] : files) {
    std::ofstream(testing::TempDir() + "/v2-" + name, std::ios::binary) << text;
    EXPECT_EQ(golden(name, "v2"), text) << name << "; what was written is in v2-" << name;
  }
}

TEST(GoldenFiles, OfVersion2AreReadAsTheyWereMeant) {
  const std::string text = golden("linking-header", "v2");
  std::uint32_t crc = 0;
  const auto header =
      decode_header(std::as_bytes(std::span(text)), text.size() + golden_data().size(), crc);
  ASSERT_TRUE(header.has_value()) << header.error().message();
  EXPECT_EQ(*header, golden_linking_header());
  EXPECT_EQ(decode_manifest(golden("manifest.json", "v2")), golden_sharing_manifest());
}

TEST(GoldenFiles, AreReadAsTheyWereMeant) {
  for (const char* name : {kBeforeShardingInfo, kShard}) {
    const std::string shard = golden(name);
    const auto bytes = std::as_bytes(std::span(shard));
    ASSERT_GT(bytes.size(), kPageBytes);
    std::uint32_t crc = 0;
    const auto header = decode_header(bytes.first(kPageBytes), bytes.size(), crc);
    ASSERT_TRUE(header.has_value()) << header.error().message();
    EXPECT_EQ(*header, golden_header());
    EXPECT_EQ(crc32c(bytes.subspan(kPageBytes)), header->block_crcs[0]);
  }
  EXPECT_EQ(decode_run(golden("deepfreeze.json")), golden_run());
  EXPECT_EQ(decode_generation(golden("generation-00000003.json")), golden_generation());
  EXPECT_EQ(decode_generation(golden("generation-00000004.json")), golden_generation_of_a_node());
  EXPECT_EQ(decode_manifest(golden("manifest.json")), golden_manifest());
}

}  // namespace
}  // namespace deepfreeze
