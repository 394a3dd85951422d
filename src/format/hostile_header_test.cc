// Headers that a decoder must refuse: damaged ones, and ones that lie with a checksum that fits.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/header_audit.h"
#include "format/header_fixture.h"

namespace deepfreeze {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t kDataBytes = 52;  // of small_header()

Result<ShardHeader> decode(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  std::uint32_t crc = 0;
  return decode_header(bytes, file_bytes, crc);
}

std::vector<std::byte> good_bytes() { return encode_header(small_header())->bytes; }

// The message with which a header of this JSON is refused.
std::string refusal(const std::string& json, std::uint64_t data_bytes = kDataBytes) {
  const auto bytes = sealed_header(json);
  const auto decoded = decode(bytes, bytes.size() + data_bytes);
  if (decoded) return "accepted";
  EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << decoded.error().message();
  return decoded.error().message();
}

// A header of the given tensors and of one data byte, or none.
std::string json_with(std::string_view tensors) {
  const auto bytes = encode_header({.identity = {.run_id = "0123456789abcdef"}})->bytes;
  std::string json = json_of(bytes);
  json.pop_back();
  return json + "," + std::string(tensors) + "}";
}

TEST(HostileHeader, EveryFlippedBitIsFound) {
  const auto good = good_bytes();
  ASSERT_TRUE(decode(good, good.size() + kDataBytes).has_value());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto decoded = decode(bytes, bytes.size() + kDataBytes);
    ASSERT_FALSE(decoded.has_value()) << bit;
    ASSERT_EQ(decoded.error().code(), ErrorCode::kCorrupt) << bit;
  }
}

TEST(HostileHeader, EveryTruncationIsFound) {
  const auto good = good_bytes();
  const std::span<const std::byte> whole(good);
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(decode(whole.first(size), size).has_value()) << size;
    const auto part = decode(whole.first(size), good.size() + kDataBytes);
    ASSERT_FALSE(part.has_value()) << size;
    const std::string cause = size < kLengthBytes ? "the file has only" : "bytes given of 4096";
    ASSERT_TRUE(part.error().message().contains(cause)) << part.error().message();
  }
  for (const std::uint64_t data_bytes : {0U, 51U, 53U, 65588U}) {
    EXPECT_FALSE(decode(good, good.size() + data_bytes).has_value()) << data_bytes;
  }
}

TEST(HostileHeader, RangesMustBeThoseOfItsTensors) {
  ShardHeader header = small_header();
  header.ranges = {{.min = 1, .max = 2, .finite = 11, .non_finite = 1}, {.non_finite = 1}};
  const std::string good = json_of(encode_header(header)->bytes);
  const std::string one = "3ff0000000000000";
  const std::string two = "4000000000000000";
  const std::string count = "0000000000000001";
  const std::string zero = "0000000000000000";
  EXPECT_EQ(refusal(good), "accepted");
  const std::pair<std::string, std::string> changes[] = {
      {one + two, two + one},                               // the least is above the greatest
      {one + two, "7ff0000000000000" + two},                // and infinite
      {one + two, one + "7ff8000000000000"},                // or none
      {one + two + count, one + two + "000000000000000d"},  // thirteen of twelve elements
      {zero + zero + count, zero + zero + "000000000000000d"},
      {one + two + count, one + two + "000000000000000c"},  // all, and yet there is a least
      {one + two, "g" + one.substr(1) + two},
      {one + two, one + two.substr(1) + "g"},
      {one + two + count, one + two + count.substr(1) + "g"},
      {one + two, one + two + one + two + count},
      {zero + zero + count, zero + zero + count + zero + zero + zero}};  // sound, of no tensor
  for (const auto& [from, to] : changes) {
    EXPECT_NE(refusal(replaced(good, from, to)), "accepted") << to;
  }
}

TEST(HostileHeader, AnAuditHasWhatItsRecordsNeed) {
  ShardHeader header = small_header();
  header.audit = {{"scale", {}, 0, 4, 0x11112222}, {"model.weight", {8, 0}, 0, 48, 0x33334444}};
  const std::string good = json_of(encode_header(header)->bytes);
  EXPECT_EQ(refusal(good), "accepted");
  std::string many_dimensions;
  for (std::size_t i = 0; i <= kRankMax; ++i) many_dimensions += "0,";
  const std::pair<std::string, std::string> changes[] = {
      {"1111222233334444", "11112222"},
      {"1111222233334444", "111122223333444455556666"},
      {"1111222233334444", "111122223333444g"},
      {"[8,0],0,48]", "[8,0],0]"},
      {"[8,0],0,48]", "[8,0],0,48,1]"},
      {"[8,0],0,48]", "[8,0],0,-1]"},
      {"[8,0],0,48]", "[8,0],0,18446744073709551616]"},
      {"[8,0],0,48]", "8,0,48]"},
      {"[8,0],0,48]", "[[8],0],0,48]"},
      {"[8,0],0,48]", "[" + many_dimensions + "0],0,48]"},
      {"[8,0],0,48]]", "[8,0],0,48]"},
      {"[8,0],0,48]]", "[8,0],0,48]]]"}};
  for (const auto& [from, to] : changes) {
    EXPECT_NE(refusal(replaced(good, from, to)), "accepted") << to;
  }
}

TEST(HostileHeader, AnAuditHasNoMoreRecordsThanAreWritten) {
  const auto refused = [](std::size_t count) {
    ShardHeader header = small_header();
    header.audit = {{"k", {}, 0, 1, 0}};
    const std::string record = R"([\"k\",[],0,1])";
    std::string records = record;
    for (std::size_t i = 1; i < count; ++i) records += "," + record;
    const std::string good = json_of(encode_header(header)->bytes);
    const std::string digits = "audit_crc32c\":\"";
    return refusal(replaced(replaced(good, record, records), digits + "00000000",
                            digits + std::string(8 * count, '0')));
  };
  EXPECT_EQ(refused(kAuditRecordsMax), "accepted");
  EXPECT_NE(refused(kAuditRecordsMax + 1), "accepted");
}

// The JSON of a good header, one text of whose metadata is another.
std::string json_with_text(std::string_view key, const std::string& text) {
  auto whole = nlohmann::ordered_json::parse(json_of(good_bytes()));
  whole["__metadata__"][std::string(key)] = text;
  return whole.dump();
}

TEST(HostileHeader, EveryMemberOfItsTextsIsLookedAt) {
  const auto whole = nlohmann::ordered_json::parse(json_of(good_bytes()));
  for (const std::string_view key : {kIdentityKey, kAnnotationsKey}) {
    const auto good =
        nlohmann::ordered_json::parse(whole["__metadata__"][std::string(key)].get<std::string>());
    EXPECT_EQ(refusal(json_with_text(key, good.dump())), "accepted");
    for (const auto& [member, value] : good.items()) {
      auto odd = good;
      odd[member] = nlohmann::ordered_json::array();
      EXPECT_NE(refusal(json_with_text(key, odd.dump())), "accepted") << member;
    }
  }
  auto annotations = nlohmann::ordered_json::parse(
      whole["__metadata__"][std::string(kAnnotationsKey)].get<std::string>());
  annotations["parent"]["step"] = -1;
  EXPECT_NE(refusal(json_with_text(kAnnotationsKey, annotations.dump())), "accepted");
}

TEST(HostileHeader, TheLengthMustBePlausible) {
  const auto size_of = [](std::uint64_t length, std::uint64_t file_bytes) {
    std::array<std::byte, 8> first8{};
    std::memcpy(first8.data(), &length, 8);
    return header_size(first8, file_bytes);
  };
  EXPECT_EQ(size_of(4088, 4096), 4096U);
  EXPECT_EQ(size_of(0, 1 << 20).error().message(),
            "header: its length is zero, so it was never written");
  EXPECT_FALSE(size_of(4088, 4095).has_value());
  EXPECT_FALSE(size_of(4089, 1 << 20).has_value());
  EXPECT_FALSE(size_of(~0ULL, ~0ULL).has_value());
  EXPECT_FALSE(size_of(~0ULL - 7, ~0ULL).has_value());
  EXPECT_EQ(size_of(24'997'888 - 8, 1ULL << 40), 24'997'888U);
  EXPECT_FALSE(size_of(25'001'984 - 8, 1ULL << 40).has_value());
  EXPECT_FALSE(header_size({}, 1 << 20).has_value());
}

TEST(HostileHeader, AnotherProgramsSafetensorsFileIsNamedSo) {
  std::string json =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  json.resize(kPageBytes - kLengthBytes, ' ');
  const auto bytes = sealed_header(json);
  const auto decoded = decode(bytes, bytes.size() + 1);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(decoded.error().message().contains("not a DeepFreeze file"));
}

TEST(HostileHeader, ANewerVersionIsNotCorrupt) {
  const std::string json = replaced(json_of(good_bytes()), R"(version":"1")", R"(version":"3")");
  const auto bytes = sealed_header(replaced(json, "F32", "F128"));
  const auto decoded = decode(bytes, bytes.size() + kDataBytes);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code(), ErrorCode::kUnsupported);
  for (const char* version : {"0", "", "-1", "1.0", "x", "99999999999999999999"}) {
    EXPECT_NE(refusal(replaced(json, R"("3")", fmt::format("\"{}\"", version))), "accepted");
  }
}

TEST(HostileHeader, LinksAreDigitsOfWholeRecords) {
  ShardHeader header = small_header();
  header.links = {{.file = 1, .header_crc = 5, .origin = Origin{.run_id = "0123456789abcdef"}}};
  const std::string good = json_of(encode_header(header)->bytes);
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_EQ(refusal(replaced(good, "0000000100000005", "000000010000000")),
            "header: 95 digits of links are no whole number");
  EXPECT_EQ(refusal(replaced(good, "0000000100000005", "00000001000000g5")),
            "header: a link is not hexadecimal digits");
  EXPECT_EQ(refusal(replaced(good, "0123456789abcdef0000", "0123456789abcdeF0000")),
            "header: a link is not hexadecimal digits");
}

TEST(HostileHeader, TheMetadataMustBeWholeAndMakeSense) {
  const std::string good = json_of(good_bytes());
  EXPECT_EQ(refusal(good), "accepted");
  const std::pair<std::string_view, std::string_view> changes[] = {
      {R"("deepfreeze.identity")", R"("deepfreeze.other")"},
      {R"("deepfreeze.annotations")", R"("deepfreeze.other")"},
      {R"("deepfreeze.blocks")", R"("deepfreeze.other")"},
      {R"("deepfreeze.tree")", R"("deepfreeze.identity")"},
      {R"("format":"pt")", R"("format":1)"},
      {R"("format":"pt")", R"("format":null)"},
      {R"(deadbeef)", R"(DEADBEEF)"},
      {R"(deadbeef)", R"(deadbee)"},
      {R"(deadbeef)", R"(deadbeef00000000)"},
      {R"(\"rank\":1)", R"(\"rank\":4)"},
      {R"(\"rank\":1)", R"(\"rank\":-1)"},
      {R"(\"file\":0)", R"(\"file\":1)"},
      {R"(\"run_id\":\"0)", R"(\"run_id\":\"x)"},
      {R"(\"wall_micros\":)", R"(\"wall_micros\":1.5,\"was\":)"},
      {R"(\"loss\":0.1)", R"(\"loss\":1e999)"},
      {R"({\"model.weight\":{)", R"({\"other\":{)"},
      {R"(\"offset\":[8,0])", R"(\"offset\":[10,0])"},
      {R"(\"offset\":[8,0])", R"(\"offset\":[8])"},
      {R"(\"offset\":[8,0],)", ""},
      {R"(,\"global_shape\":[14,2])", ""},
      {R"(\"offset\":[8,0])", R"(\"offset\":[18446744073709551615,0])"}};
  for (const auto& [from, to] : changes) {
    EXPECT_NE(refusal(replaced(good, from, to)), "accepted") << from << " -> " << to;
  }
}

// If several checks would refuse, the first one names the cause.
TEST(HostileHeader, TheFirstThingWrongIsNamed) {
  const std::string good = json_of(good_bytes());
  EXPECT_EQ(refusal(replaced(good, "deadbeef", "deadbeef0000")),
            "header: 12 digits of checksums for 1 blocks");
  EXPECT_TRUE(refusal(json_with(R"("a":{"dtype":"C8","shape":[1],"data_offsets":[0,1]})"), 1)
                  .contains("an unknown dtype"));
  EXPECT_TRUE(refusal(replaced(good, R"(\"metrics\":{)", R"(\"metrics\":[],\"was\":{)"))
                  .contains("member \"metrics\" is not an object"));
  EXPECT_TRUE(refusal(replaced(good, R"(\"metrics\":{)", R"(\"was\":{)"))
                  .contains("member \"metrics\" is not an object"));
}

TEST(HostileHeader, UnknownMetadataIsIgnored) {
  const std::string json = replaced(json_of(good_bytes()), R"("format":"pt")",
                                    R"("format":"pt","deepfreeze.later":"x")");
  EXPECT_EQ(refusal(json), "accepted");
}

TEST(HostileHeader, TensorsFillTheDataInOrderAndExactly) {
  const std::string good = json_of(good_bytes());
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[49,53]"},  // a hole
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[44,48]"},  // an overlap
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,51]"},  // too short
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,47]"},  // backwards
      {"\"data_offsets\":[0,48]", "\"data_offsets\":[4,52]"},    // a hole in front
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,18446744073709551615]"},
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,18446744073709551668]"},
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48]"},
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,52,52]"},
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,52.0]"},
      {"\"data_offsets\":[48,52]", "\"data_offsets\":[48,\"52\"]"},
      {"\"shape\":[]", "\"shape\":[4294967296,4294967296,4]"},  // wraps to 0
      {"\"shape\":[]", "\"shape\":[4611686018427387905]"},      // wraps to 4
      {"\"shape\":[]", "\"shape\":[-1]"},
      {"\"shape\":[]", "\"shape\":[[1]]"},
      {"\"shape\":[]", "\"shape\":null"},
      {"\"shape\":[],", ""},
      {"\"shape\":[]", "\"shape\":[],\"shape\":[]"},
      {"\"shape\":[]", "\"shape\":[],\"extra\":1"},
      {"\"dtype\":\"F32\"", "\"dtype\":\"C64\""},
      {"\"dtype\":\"F32\"", "\"dtype\":\"F64\""},
      {"\"scale\":{", "\"scale\":[{"},
      {"\"scale\"", "\"model.weight\""},
      {"\"scale\"", "\"\\u006dodel.weight\""},
      {"\"scale\"", "\"__metadata__\""},
      {"\"scale\"", "\"\""}};
  for (const auto& [from, to] : changes) {
    EXPECT_NE(refusal(replaced(good, from, to)), "accepted") << from << " -> " << to;
  }
}

// The file is as long as the last tensor claims, so nothing but the hole is wrong.
TEST(HostileHeader, HolesAreRefusedThoughTheFileIsAsLongAsTheyNeed) {
  const std::string good = json_of(good_bytes());
  const std::string between =
      replaced(good, "\"data_offsets\":[48,52]", "\"data_offsets\":[56,60]");
  EXPECT_EQ(refusal(between, 60),
            "header: tensor \"scale\" begins at 56, but 48 is next in the data section");
  const std::string front = json_with(R"("a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]})");
  const std::string one_block = replaced(front, R"(blocks":"")", R"(blocks":"00000000")");
  EXPECT_EQ(refusal(one_block, 5),
            "header: tensor \"a\" begins at 4, but 0 is next in the data section");
}

// Four quarters of all that 64 bits count: the sum is 0, as much as the file has.
TEST(HostileHeader, OffsetsThatWrapAroundAreRefused) {
  std::string tensors;
  const std::array<std::string_view, 5> offsets = {
      "0", "4611686018427387904", "9223372036854775808", "13835058055282163712", "0"};
  for (std::size_t i = 0; i < 4; ++i) {
    tensors += fmt::format(
        R"({}"{}":{{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[{},{}]}})",
        i == 0 ? "" : ",", i, offsets[i], offsets[i + 1]);
  }
  EXPECT_TRUE(refusal(json_with(tensors), 0).contains("lies from 13835058055282163712 to 0"));
}

TEST(HostileHeader, HugeClaimsAllocateNothing) {
  EXPECT_TRUE(refusal(json_with(R"("a":{"dtype":"U8","shape":[9223372036854775807],)"
                                R"("data_offsets":[0,9223372036854775807]})"),
                      1)
                  .contains("blocks"));
  EXPECT_NE(refusal(json_with(R"("a":{"dtype":"U8","shape":[)" + std::string(1000, '1') +
                              R"(],"data_offsets":[0,0]})")),
            "accepted");
  std::string ones = "1";
  for (std::size_t i = 0; i < kRankMax; ++i) ones += ",1";
  EXPECT_TRUE(
      refusal(json_with(R"("a":{"dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1]})"), 1)
          .contains("too many dimensions"));
}

TEST(HostileHeader, DeepNestingIsRefusedNotFollowed) {
  const std::string deep(1'000'000, '[');
  EXPECT_NE(refusal(json_with("\"a\":" + deep)), "accepted");
  EXPECT_NE(refusal(json_with(R"("a":{"dtype":"U8","shape":)" + deep)), "accepted");
  const std::string json = json_of(good_bytes());
  EXPECT_NE(refusal(replaced(json, R"(identity":"{)", R"(identity":")" + deep)), "accepted");
  EXPECT_NE(refusal(replaced(json, R"({\"model.weight\":{)", deep + R"({\"model.weight\":{)")),
            "accepted");
}

TEST(HostileHeader, OnlySpacesFollowTheJson) {
  const std::string json = json_of(good_bytes());
  for (const std::string_view tail : {"x"sv, "}"sv, "{}"sv, ","sv, "\0"sv}) {
    EXPECT_NE(refusal(json + std::string(tail)), "accepted");
  }
}

TEST(HostileHeader, NastyKeysComeBackAsTheyWere) {
  ShardHeader header{.identity = {.run_id = "0123456789abcdef"}};
  for (const std::string_view key : {"../../etc/passwd", "\"", "\\", "\x01\x1f\x7f", "é🧊", " ",
                                     "a\nb", "{}", "null", "deepfreeze.crc32c", "$"}) {
    header.entries.push_back(entry(std::string(key), {0}, 0, 0));
  }
  header.entries.push_back(entry(std::string("nul\0in it", 9), {0}, 0, 0));
  header.entries.push_back(entry(std::string(kKeyBytesMax, 'k'), {0}, 0, 0));
  const auto bytes = encode_header(header)->bytes;
  const auto decoded = decode(bytes, bytes.size());
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, header);
}

}  // namespace
}  // namespace deepfreeze
