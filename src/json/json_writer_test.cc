#include "json/json_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "json/json_oracle.h"
#include "json/json_reader.h"

namespace deepfreeze {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string number_text(double value) {
  JsonWriter writer;
  writer.value(value);
  return writer.text();
}

std::string their_text(const ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::string our_text(const ordered_json& value, JsonWriter::Layout layout) {
  JsonWriter writer(layout);
  write_theirs(writer, value);
  return writer.text();
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
    EXPECT_EQ(*parse_strict(written)->as_string(), text);
  }
}

// Bytes that begin, continue and break off characters of every length, and all that is escaped.
TEST(JsonWriter, WritesAnyBytesAsAnotherLibraryDoes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  std::mt19937_64 random(seed);
  constexpr std::string_view kBytes =
      "a\"\\/"
      "\b\f\n\r\t\x01\x1f\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4"
      "\xf5\xff";
  for (int round = 0; round < 50'000; ++round) {
    std::string text;
    for (std::uint64_t size = random() % 8; size > 0; --size)
      text += kBytes[random() % kBytes.size()];
    ASSERT_EQ(our_text(text, JsonWriter::Layout::kOneLine), their_text(text));
  }
  EXPECT_EQ(our_text(std::string(1, '\0'), JsonWriter::Layout::kOneLine), R"("\u0000")");
}

TEST(JsonWriter, HeadersSpellControlCharactersInHexadecimal) {
  fmt::memory_buffer out;
  append_json_string(out, "a\n\x1f\"\\\xc3\xa9", ControlEscapes::kHex);
  EXPECT_EQ(fmt::to_string(out), "\"a\\u000a\\u001f\\\"\\\\\xc3\xa9\"");
}

TEST(JsonWriter, NestsAndIndentsAsAnotherLibraryDoes) {
  for (const char* const text :
       {"[]", "{}", R"([[],{},[[]],[1]])",
        R"({"a":{},"b":[],"c":{"d":[1,{"e":null},"f"],"g":true}})",
        R"([18446744073709551615,-9223372036854775808,9007199254740993,0,-1,false])", "null",
        "7"}) {
    const ordered_json value = ordered_json::parse(text);
    EXPECT_EQ(our_text(value, JsonWriter::Layout::kOneLine), their_text(value));
    EXPECT_EQ(our_text(value, JsonWriter::Layout::kIndented), their_text(value, 2));
  }
}

TEST(JsonWriter, TakesWhateverMembersHave) {
  JsonWriter writer;
  writer.object(
      "text", std::string_view("t"), "none", std::optional<int>(), "some", std::optional(1.5),
      "map", std::map<std::string, double>{{"a", 0.5}}, "list", std::vector<std::string>{"x", "y"},
      "sub", json_object("n", nullptr), "last",
      json_array(std::array{1, 2}, [](JsonWriter& list, int each) { list.value(each * 2); }));
  EXPECT_EQ(writer.text(), R"({"text":"t","none":null,"some":1.5,"map":{"a":0.5},)"
                           R"("list":["x","y"],"sub":{"n":null},"last":[2,4]})");
}

TEST(JsonNumbers, AreWrittenSo) {
  const std::map<double, std::string> written = {
      {0.0, "0.0"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {-2.5, "-2.5"},
      {100.0, "100.0"},
      {0.0001, "0.0001"},
      {0.00012345, "0.00012345"},
      {0.00001, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {123456789012345.0, "123456789012345.0"},
      {999999999999999.0, "999999999999999.0"},
      {1e15, "1e+15"},
      {1234567890123456.0, "1.234567890123456e+15"},
      {1e100, "1e+100"},
      {1e-100, "1e-100"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {1.0 / 3, "0.3333333333333333"}};
  for (const auto& [value, text] : written) {
    EXPECT_EQ(number_text(value), text);
    EXPECT_EQ(their_text(value), text);
  }
  EXPECT_EQ(number_text(-0.0), "-0.0");
  EXPECT_EQ(number_text(std::nan("")), R"("nan")");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), R"("inf")");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), R"("-inf")");
}

// The other library's digits are not always the shortest, or the nearest of the shortest.
TEST(JsonNumbers, AreTheSameNumbersAndNeverLonger) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  std::mt19937_64 random(seed);
  int other = 0;
  constexpr int kRounds = 100'000;
  for (int round = 0; round < kRounds; ++round) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const std::string ours = number_text(value);
    const std::string others = their_text(value);
    const auto read = to_double(ours);
    ASSERT_TRUE(read && std::bit_cast<std::uint64_t>(*read) == std::bit_cast<std::uint64_t>(value))
        << ours;
    ASSERT_TRUE(is_float_token(ours));
    ASSERT_LE(ours.size(), others.size());
    if (ours != others) ++other;
  }
  EXPECT_LT(other, kRounds / 100);
}

}  // namespace
}  // namespace deepfreeze
