#include "format/tag_record.h"

#include <gtest/gtest.h>

#include <limits>

namespace deepfreeze::tag_record_test {
namespace {

TagRecord record() {
  return {.run_id = "0123456789abcdef",
          .attempt = {100, 0x9f2c},
          .number = 3,
          .wall_micros = std::numeric_limits<std::int64_t>::max(),
          .tags = {{"lr", "3e-4"}, {"note", "the \"best\" of all\n"}, {"größe", ""}}};
}

TEST(TagRecord, ComesBackAsItWas) {
  EXPECT_EQ(decode_tags(encode_tags(record())).value(), record());
  EXPECT_EQ(decode_tags(encode_tags({.run_id = "0123456789abcdef"}))->tags, Tags());
}

TEST(TagRecord, NamesAreThoseThatAreMadeAndNoOthers) {
  EXPECT_EQ(tag_file_name(3), "tags-00000003.json");
  for (const std::uint64_t number : {1ULL, 99'999'999ULL, 100'000'000ULL}) {
    EXPECT_EQ(parse_tag_file_name(tag_file_name(number)), number);
  }
  for (const char* name :
       {"tags-3.json", "tags-00000003.json~", "tags-00000003", "tags-.json", "tags-0000000x.json",
        "tags-000000003.json", "xtags-00000003.json", "tags--0000003.json", "tags.json", ""}) {
    EXPECT_FALSE(parse_tag_file_name(name)) << name;
  }
}

TEST(TagRecord, NamesThatNoConditionCouldHoldAreRefused) {
  for (const char* name :
       {"", "a b", "a=b", "a<b", "a>b", "a!", "\"a\"", "'a'", "a\tb", "a\x7f", "\xff", "a\n"}) {
    const Status checked = check_tags({{name, "v"}});
    ASSERT_FALSE(checked) << name;
    EXPECT_EQ(checked.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(check_tags({{"eval/acc.top-1@5", "v w = x"}, {"größe", ""}}));
}

TEST(TagRecord, LongOnesAndManyAreRefused) {
  EXPECT_TRUE(
      check_tags({{std::string(kTagNameBytesMax, 'n'), std::string(kTagValueBytesMax, 'v')}}));
  EXPECT_FALSE(check_tags({{std::string(kTagNameBytesMax + 1, 'n'), ""}}));
  EXPECT_FALSE(check_tags({{"n", std::string(kTagValueBytesMax + 1, 'v')}}));
  EXPECT_FALSE(check_tags({{"n", "\xff"}}));
  Tags many;
  for (std::size_t i = 0; i < kTagsMax; ++i) many[std::to_string(i)] = "";
  EXPECT_TRUE(check_tags(many));
  many["one more"] = "";
  EXPECT_FALSE(check_tags(many));
}

TEST(TagRecord, DamageIsFound) {
  const std::string text = encode_tags(record());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(decode_tags(damaged)) << bit;
  }
  TagRecord bad = record();
  bad.tags = {{"a b", "v"}};
  EXPECT_EQ(decode_tags(encode_tags(bad)).error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deepfreeze::tag_record_test
