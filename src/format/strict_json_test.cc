#include "format/strict_json.h"
#include "format/sealed_fixture.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "base/mapped_memory.h"
#include "format/json_writer.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using namespace std::string_view_literals;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseStrict, TakesEverythingThatJsonHas) {
  const std::string text =
      R"( {"a":[1,-2,0,-0.0,1.5e-3,18446744073709551615,-9223372036854775808],"b":{"c":null},)"
      R"("d":[true,false,[],{}],"e\n\u00e9\ud83e\uddca":"\"\\\/\b\f\n\r\t","":"é🧊"} )";
  const auto parsed = parse_strict(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(*parsed, json::parse(text));
  EXPECT_TRUE((*parsed)["a"][3].is_number_float());
}

TEST(ParseStrict, RefusesWhatIsNotStrict) {
  for (const std::string_view text : {""sv,
                                      " "sv,
                                      "{"sv,
                                      "}"sv,
                                      "[1,]"sv,
                                      "[,1]"sv,
                                      "[1 2]"sv,
                                      R"({"a":1,})"sv,
                                      R"({"a" 1})"sv,
                                      R"({a:1})"sv,
                                      R"({"a"})"sv,
                                      "01"sv,
                                      "1."sv,
                                      ".5"sv,
                                      "+1"sv,
                                      "-"sv,
                                      "1e"sv,
                                      "1e+"sv,
                                      "--1"sv,
                                      "0x1"sv,
                                      "NaN"sv,
                                      "Infinity"sv,
                                      "-Infinity"sv,
                                      "nul"sv,
                                      "truex"sv,
                                      "tru"sv,
                                      "\"\\x\""sv,
                                      "\"\\u12\""sv,
                                      "\"\\u12g4\""sv,
                                      R"("\ud800")"sv,
                                      R"("\udc00")"sv,
                                      R"("\ud800\u0041")"sv,
                                      R"("\ud800\ud800")"sv,
                                      R"("\udc00\udc00")"sv,
                                      "\"a"sv,
                                      "\"\\"sv,
                                      "\"a\nb\""sv,
                                      "\"a\0b\""sv,
                                      "'a'"sv,
                                      "\"\xff\""sv,
                                      "\"\xc0\x80\""sv,
                                      "\"\xed\xa0\x80\""sv,
                                      "\"\xe2\x82\""sv,
                                      "1 2"sv,
                                      "{} {}"sv,
                                      "[]x"sv,
                                      "[1]\0"sv,
                                      "1e999"sv,
                                      "-1e999"sv,
                                      "18446744073709551616"sv,
                                      "-9223372036854775809"sv,
                                      "/**/1"sv,
                                      "[1]//"sv,
                                      "\xef\xbb\xbf[]"sv,
                                      R"({"a":1,"b":2,"a":3})"sv,
                                      R"({"a":1,"\u0061":2})"sv,
                                      R"([{"x":{"k":1,"k":1}}])"sv}) {
    const auto parsed = parse_strict(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(ParseStrict, NamesThePlaceAndTheCause) {
  EXPECT_EQ(parse_strict(R"({"a":1,"a":2})").error().message(),
            R"(JSON at byte 13: the key "a" twice in one object)");
  EXPECT_EQ(parse_strict("[1,2").error().message(), "JSON at byte 4: expected ,");
}

TEST(ParseStrict, TellsAStringThatEndsFromOneThatIsWrong) {
  const std::string_view quoted = R"("a")";
  EXPECT_EQ(parse_strict(quoted.substr(0, 2)).error().message(),
            "JSON at byte 2: a string without an end");
  EXPECT_EQ(parse_strict("\"\\u12").error().message(),
            "JSON at byte 3: expected four hexadecimal digits");
}

// A read beyond the last byte ends the process.
class BeforeForbiddenMemory {
 public:
  BeforeForbiddenMemory() { EXPECT_EQ(::mprotect(forbidden(), kPageBytes, PROT_NONE), 0); }
  std::string_view put(std::string_view text) {
    char* const begin = reinterpret_cast<char*>(forbidden()) - text.size();
    std::ranges::copy(text, begin);
    return {begin, text.size()};
  }

 private:
  std::byte* forbidden() { return memory_.bytes().data() + kPageBytes; }

  MappedMemory memory_ = MappedMemory::allocate(2 * kPageBytes).value();
};

TEST(ParseStrict, LooksAtNothingBehindTheEnd) {
  BeforeForbiddenMemory memory;
  const std::string_view whole = R"({"a":[1,"b",true,-0.5e1]})";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_strict(memory.put(whole.substr(0, size))).has_value()) << size;
  }
  EXPECT_TRUE(parse_strict(memory.put(whole)).has_value());
}

TEST(ParseStrict, BoundsTheDepth) {
  EXPECT_TRUE(parse_strict(nested(kJsonDepthMax)).has_value());
  EXPECT_FALSE(parse_strict(nested(kJsonDepthMax + 1)).has_value());
  EXPECT_TRUE(parse_strict(nested(5), 5).has_value());
  EXPECT_FALSE(parse_strict(std::string(10'000'000, '[')).has_value());
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += R"({"a":)";
  EXPECT_FALSE(parse_strict(objects).has_value());
}

// Another parser decides whether a text is JSON; ours refuses more, for the reasons that it names.
TEST(ParseStrict, AgreesWithAnotherParserOnDamagedTexts) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  std::mt19937_64 random(seed);
  const std::string good =
      R"({"a":[1,-2.5e+3,true,null],"b\u0041":{"c":"x\"\\y","d":[[],{}]},"e":false,"f":"é"})";
  constexpr std::string_view kBytes = "{}[]:,\"\\u0eE+-.19 \ntfnl\xc3\xa9\xff";
  int accepted = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string text = good;
    for (std::uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const char byte = kBytes[random() % kBytes.size()];
      if (random() % 2 == 0) {
        text[at] = byte;
      } else {
        text.insert(at, 1, byte);
      }
    }
    const auto ours = parse_strict(text);
    const json theirs = json::parse(text, nullptr, false);
    if (ours) {
      ++accepted;
      EXPECT_EQ(*ours, theirs) << text;
    } else if (!theirs.is_discarded()) {
      const std::string& cause = ours.error().message();
      EXPECT_TRUE(cause.contains("twice") || cause.contains("out of range")) << cause << text;
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(AppendJsonString, WritesWhatEveryParserReads) {
  std::string all;
  for (char c = 1; c < 127; ++c) all.push_back(c);
  for (const std::string& text :
       {all, std::string("\0\x7f", 2), std::string("é🧊\"\\"), std::string()}) {
    fmt::memory_buffer out;
    append_json_string(out, text);
    const std::string written(out.data(), out.size());
    EXPECT_EQ(json::parse(written), text);
    EXPECT_EQ(parse_strict(written).value_or(nullptr), text);
  }
}

TEST(SealedJson, RoundTrips) {
  const std::string text = seal_json({{"a", 1}, {"b", {{"c", "d\n"}}}});
  EXPECT_TRUE(text.starts_with(R"({"crc32c":")"));
  const auto parsed = parse_sealed(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ((*parsed)["b"]["c"], "d\n");
}

TEST(SealedJson, StaysJsonWhereTheTextIsNotUtf8) {
  const auto parsed = parse_sealed(seal_json({{"path", "a\xff"}}));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ((*parsed)["path"], "a\ufffd");
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
    EXPECT_EQ(get_u64(json{{"n", whole_json(value)}}, "n"), value);
  }
  for (const std::int64_t value : {std::int64_t{-1}, INT64_MIN, INT64_MAX, -kJsonIntegerMax - 1}) {
    EXPECT_EQ(get_i64(json{{"n", whole_json(value)}}, "n"), value);
  }
  EXPECT_EQ(whole_json((std::uint64_t{1} << 53) + 1), "9007199254740993");
}

TEST(WholeNumbers, HaveOneSpelling) {
  for (const json& value : {json(1.0), json("1"), json("-1"), json(-1), json((1ULL << 53) + 1),
                            json("09007199254740993"), json("18446744073709551616"), json(nullptr),
                            json(true), json("9007199254740993 ")}) {
    EXPECT_FALSE(get_u64(json{{"n", value}}, "n").has_value()) << value;
  }
  EXPECT_FALSE(get_u32(json{{"n", 1ULL << 32}}, "n").has_value());
  EXPECT_FALSE(get_i64(json{{"n", -kJsonIntegerMax - 1}}, "n").has_value());
}

TEST(Members, AreNamedWhenTheyAreWrong) {
  const json object = {{"n", 1}, {"s", "00ff"}};
  EXPECT_EQ(get_string(object, "n").error().message(), "member \"n\" is not a string");
  EXPECT_EQ(get_string(object, "x").error().message(), "member \"x\" is missing");
  EXPECT_FALSE(get_hex32(object, "s").has_value());
  EXPECT_FALSE(get_u64(json(3), "n").has_value());
}

}  // namespace
}  // namespace deepfreeze
