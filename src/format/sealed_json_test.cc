#include "format/sealed_json.h"

#include <gtest/gtest.h>

#include "format/members.h"
#include "format/sealed_fixture.h"

namespace deepfreeze {
namespace {

JsonValue parsed(const nlohmann::json& value) { return parse_strict(value.dump()).value(); }

JsonValue written_whole(auto value) {
  JsonWriter writer;
  writer.object("n", whole(value));
  return parse_strict(writer.text()).value();
}

TEST(SealedJson, RoundTrips) {
  const std::string text = seal_json({{"a", 1}, {"b", {{"c", "d\n"}}}});
  EXPECT_TRUE(text.starts_with(R"({"crc32c":")"));
  const auto parsed = parse_sealed(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(*parsed->find("b")->find("c")->as_string(), "d\n");
}

TEST(SealedJson, StaysJsonWhereTheTextIsNotUtf8) {
  const auto parsed = parse_sealed(seal_json({{"path", "a\xff"}}));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed->find("path")->as_string(), "a\ufffd");
}

TEST(SealedJson, RefusesEveryFlippedBitAndEveryTruncation) {
  const std::string good = seal_json({{"a", 1}, {"b", "text"}});
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string text = good;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    const auto parsed = parse_sealed(text);
    ASSERT_FALSE(parsed.has_value()) << bit;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kCorrupt);
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_sealed(good.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(parse_sealed(good + " ").has_value());
}

TEST(WholeNumbers, AreExactOverTheirWholeRange) {
  for (const std::uint64_t value : {0ULL, 1ULL << 53, (1ULL << 53) + 1, ~0ULL}) {
    EXPECT_EQ(get_u64(written_whole(value), "n"), value);
  }
  for (const std::int64_t value : {std::int64_t{-1}, INT64_MIN, INT64_MAX, -kJsonIntegerMax - 1}) {
    EXPECT_EQ(get_i64(written_whole(value), "n"), value);
  }
  EXPECT_EQ(*written_whole((std::uint64_t{1} << 53) + 1).find("n")->as_string(),
            "9007199254740993");
}

TEST(WholeNumbers, HaveOneSpelling) {
  for (const nlohmann::json& value :
       {nlohmann::json(1.0), nlohmann::json("1"), nlohmann::json("-1"), nlohmann::json(-1),
        nlohmann::json((1ULL << 53) + 1), nlohmann::json("09007199254740993"),
        nlohmann::json("18446744073709551616"), nlohmann::json(nullptr), nlohmann::json(true),
        nlohmann::json("9007199254740993 ")}) {
    EXPECT_FALSE(get_u64(parsed(nlohmann::json{{"n", value}}), "n").has_value()) << value;
  }
  EXPECT_FALSE(get_u32(parsed(nlohmann::json{{"n", 1ULL << 32}}), "n").has_value());
  EXPECT_FALSE(get_i64(parsed(nlohmann::json{{"n", -kJsonIntegerMax - 1}}), "n").has_value());
}

TEST(Members, AreNamedWhenTheyAreWrong) {
  const JsonValue object = parsed({{"n", 1}, {"s", "00ff"}});
  EXPECT_EQ(get_string(object, "n").error().message(), "member \"n\" is not a string");
  EXPECT_EQ(get_string(object, "x").error().message(), "member \"x\" is missing");
  EXPECT_FALSE(get_hex32(object, "s").has_value());
  EXPECT_FALSE(get_u64(parsed(3), "n").has_value());
}

}  // namespace
}  // namespace deepfreeze
