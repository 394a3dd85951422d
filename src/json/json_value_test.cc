#include "json/json_value.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <random>

#include "base/mapped_memory.h"
#include "json/json_oracle.h"
#include "support/refuse_memory.h"
#include "support/sanitized.h"

namespace deepfreeze {
namespace {

using nlohmann::json;
using namespace std::string_view_literals;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseStrict, TakesEverythingThatJsonHas) {
  const std::string text =
      R"( {"a":[1,-2,0,-0.0,1.5e-3,18446744073709551615,-9223372036854775808],"b":{"c":null},)"
      R"("d":[true,false,[],{}],"e\n\u00e9\ud83e\uddca":"\"\\\/\b\f\n\r\t","":"é🧊"} )";
  const auto parsed = parse_strict(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(theirs(*parsed), json::parse(text));
  EXPECT_TRUE(theirs(*parsed)["a"][3].is_number_float());
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

constexpr std::size_t kPage = 4096;

// A read beyond the last byte ends the process.
class BeforeForbiddenMemory {
 public:
  BeforeForbiddenMemory() { EXPECT_EQ(::mprotect(forbidden(), kPage, PROT_NONE), 0); }
  std::string_view put(std::string_view text) {
    char* const begin = reinterpret_cast<char*>(forbidden()) - text.size();
    std::ranges::copy(text, begin);
    return {begin, text.size()};
  }

 private:
  std::byte* forbidden() { return memory_.bytes().data() + kPage; }

  MappedMemory memory_ = MappedMemory::allocate(2 * kPage).value();
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
  constexpr int kRounds = kSanitized ? 10'000 : 40'000;
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
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
    const json other = json::parse(text, nullptr, false);
    if (ours) {
      ++accepted;
      EXPECT_EQ(theirs(*ours), other) << text;
    } else if (!other.is_discarded()) {
      const std::string& cause = ours.error().message();
      EXPECT_TRUE(cause.contains("twice") || cause.contains("out of range")) << cause << text;
    }
  }
  EXPECT_GT(accepted, kRounds / 40);
}

TEST(ParseStrict, KeepsTheOrderOfMembers) {
  const auto parsed = parse_strict(R"({"b":1,"a":[true,null],"":-0.5,"c":-7})");
  ASSERT_TRUE(parsed.has_value());
  std::string names;
  for (const auto& [name, value] : *parsed->as_object()) names += name + ",";
  EXPECT_EQ(names, "b,a,,c,");
  EXPECT_EQ(*parsed->find("b")->as_u64(), 1U);
  EXPECT_EQ(*parsed->find("c")->as_i64(), -7);
  EXPECT_EQ(parsed->find("c")->as_number(), -7.0);
  EXPECT_EQ(parsed->find("")->as_number(), -0.5);
  EXPECT_EQ(parsed->find("d"), nullptr);
  EXPECT_EQ(parsed->find("a")->find("b"), nullptr) << "no object";
  EXPECT_EQ(parsed->find("a")->as_string(), nullptr);
}

// A destructor that allocates ends the process when there is no memory.
TEST(ParseStrict, IsFreedWithoutAllocating) {
  const std::string text =
      R"({"a":[)" + nested(40) + R"(,{"long enough to be elsewhere":"and this too"},1,null]})";
  std::optional<JsonValue> value = parse_strict(text).value();
  const MemoryRefusal refusal(::gettid(), [] { return true; });
  EXPECT_THROW((void)parse_strict("[7]"), std::bad_alloc);
  value.reset();
}

}  // namespace
}  // namespace deepfreeze
