#include "attacks/equal_hashes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "format/header_fixture.h"

namespace deepfreeze {
namespace {

constexpr unsigned kSecondsMax = 60;  // it takes less than one; by a hash table, minutes
constexpr std::size_t kNames = 200'000;

std::string entries_of(std::span<const std::string> names) {
  std::string entries;
  for (const std::string& name : names) {
    entries += ",\"" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  return entries;
}

TEST(EqualHashes, AreWhatTheyAreMadeFor) {
  const std::vector<std::string> names = names_of_equal_hash(10'000);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  std::set<std::size_t> hashes;
  for (const std::string& name : names) hashes.insert(std::hash<std::string_view>()(name));
  EXPECT_EQ(hashes.size(), 1U);
}

TEST(EqualHashes, DoNotMakeAHeaderSlowToRead) {
  const std::vector<std::string> names = names_of_equal_hash(kNames);
  const std::string extras = R"("deepfreeze.tensors":"{\")" + names.front() + R"(\":{}}",)";
  std::string json =
      json_of(encode_header(ShardHeader{.identity = {.run_id = "0123456789abcdef"}})->bytes);
  json.insert(json.find(R"("deepfreeze.blocks")"), extras);
  json.insert(json.size() - 1, entries_of(names));
  const std::vector<std::byte> bytes = sealed_header(json);
  ::alarm(kSecondsMax);
  std::uint32_t crc = 0;
  const auto header = decode_header(bytes, bytes.size(), crc);
  ::alarm(0);
  ASSERT_TRUE(header.has_value()) << header.error().message();
  EXPECT_EQ(header->entries.size(), kNames);
}

}  // namespace
}  // namespace deepfreeze
