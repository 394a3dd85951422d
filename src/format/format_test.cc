// Names, layout and strict JSON.
#include <gtest/gtest.h>

#include "format/layout.h"
#include "format/names.h"
#include "format/strict_json.h"

namespace deepfreeze {
namespace {

TensorSpec bytes_spec(std::string key, std::uint64_t bytes) {
  return {.key = std::move(key), .dtype = DType::kU8, .shape = {bytes}};
}

TEST(Names, RoundTrip) {
  const AttemptName attempt{100, 0x9f2c41d07a3be856};
  EXPECT_EQ(attempt_dir_name(attempt), "step-000000000100-9f2c41d07a3be856");
  EXPECT_EQ(parse_attempt_dir_name(attempt_dir_name(attempt)), attempt);
  const AttemptName huge{~0ULL, 1};
  EXPECT_EQ(parse_attempt_dir_name(attempt_dir_name(huge)), huge);
  const PartName part{3, 4, 0, 1};
  EXPECT_EQ(sealed_file_name(part), "rank-00003-of-00004-0-of-1.safetensors");
  EXPECT_EQ(parse_sealed_file_name(sealed_file_name(part)), part);
  EXPECT_EQ(generation_file_name(2), "generation-00000002.json");
  EXPECT_EQ(parse_generation_file_name("generation-00000002.json"), 2U);
}

TEST(Names, RefuseEverythingElse) {
  for (const char* bad :
       {"", "step-100-9f2c41d07a3be856", "step-000000000100-9f2c41d07a3be85",
        "step-000000000100-9F2C41D07A3BE856", "step-0000000000100-9f2c41d07a3be856",
        "step-000000000100-9f2c41d07a3be856x", "step--00000000100-9f2c41d07a3be856",
        "step-99999999999999999999999-9f2c41d07a3be856"}) {
    EXPECT_EQ(parse_attempt_dir_name(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_sealed_file_name("rank-00004-of-00004-0-of-1.safetensors"), std::nullopt);
  EXPECT_EQ(parse_sealed_file_name("rank-00000-of-00001-1-of-1.safetensors"), std::nullopt);
  EXPECT_EQ(parse_sealed_file_name("rank-00000-of-00001-0-of-1.part"), std::nullopt);
  EXPECT_EQ(parse_generation_file_name("generation-2.json"), std::nullopt);
  for (const char* bad : {"", ".", "..", "a/b", "a b", "a\n"}) EXPECT_FALSE(is_safe_name(bad));
  EXPECT_FALSE(is_safe_name(std::string(129, 'a')));
  EXPECT_TRUE(is_safe_name("rank-00000-of-00001-0-of-1.safetensors"));
}

TEST(Layout, PutsAlignedTensorsFirstAndLeavesNoHole) {
  const std::vector<TensorSpec> specs = {bytes_spec("odd", 3), bytes_spec("page", 8192),
                                         bytes_spec("empty", 0), bytes_spec("quad", 20),
                                         bytes_spec("page2", 4096)};
  const auto layout = lay_out(specs);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->order, (std::vector<std::size_t>{1, 4, 3, 0, 2}));
  std::uint64_t end = 0;
  for (const std::size_t i : layout->order) {
    EXPECT_EQ(layout->extents[i].begin, end);
    end = layout->extents[i].end;
  }
  EXPECT_EQ(end, layout->data_bytes);
  EXPECT_EQ(layout->extents[4].begin % 4096, 0U);
  EXPECT_EQ(layout->extents[3].begin % 4, 0U);
}

TEST(Layout, SaysWhenSizesOverflow) {
  EXPECT_FALSE(lay_out(std::vector{bytes_spec("a", ~0ULL), bytes_spec("b", 1)}).has_value());
  EXPECT_EQ(block_count(0), 0U);
  EXPECT_EQ(block_count(kBlockBytes + 1), 2U);
}

std::string cause(std::string_view text) {
  const auto parsed = parse_strict(text, 4);
  return parsed ? "accepted" : parsed.error().message();
}

TEST(StrictJson, RefusesWhatAWellMeantFileNeverHolds) {
  EXPECT_EQ(cause(R"({"a":[1,{"b":2}]})"), "accepted");
  EXPECT_EQ(cause(R"({"a":1,"a":2})"), "the key \"a\" stands twice in one object");
  EXPECT_EQ(cause(R"([{"a":1,"a":1}])"), "the key \"a\" stands twice in one object");
  EXPECT_EQ(cause(R"([{"a":1},{"a":1}])"), "accepted");
  EXPECT_EQ(cause("[[[[[1]]]]]"), "nested deeper than 4");
  EXPECT_NE(cause("{} {}"), "accepted");
  EXPECT_NE(cause("{"), "accepted");
  EXPECT_NE(cause("\"\xff\""), "accepted");
  EXPECT_NE(cause(""), "accepted");
  EXPECT_EQ(parse_strict(std::string(1'000'000, '['), 64).error().message(),
            "nested deeper than 64");
}

TEST(StrictJson, TypedAccessNamesTheMember) {
  const nlohmann::json object = {{"n", -1}, {"s", "x"}, {"u", 7}};
  EXPECT_EQ(get_u64(object, "u"), 7U);
  EXPECT_EQ(get_i64(object, "n"), -1);
  EXPECT_EQ(get_string(object, "s"), "x");
  EXPECT_FALSE(get_u64(object, "n").has_value());
  EXPECT_NE(get_string(object, "t").error().message().find("\"t\""), std::string::npos);
  EXPECT_FALSE(get_u64(nlohmann::json::array(), "n").has_value());
}

}  // namespace
}  // namespace deepfreeze
