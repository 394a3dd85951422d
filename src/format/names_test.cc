#include "format/names.h"

#include <gtest/gtest.h>

#include <limits>

namespace deepfreeze {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(AttemptDirName, RoundTrips) {
  EXPECT_EQ(attempt_dir_name({.step = 100, .attempt_id = 0x9f2c41d07a3be856}),
            "step-000000000100-9f2c41d07a3be856");
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{999'999'999'999}, kMax}) {
    const AttemptName name{.step = step, .attempt_id = kMax - step};
    EXPECT_EQ(parse_attempt_dir_name(attempt_dir_name(name)), name);
  }
}

TEST(AttemptDirName, RefusesEveryOtherSpelling) {
  for (const char* text :
       {"", "step-", "step-100-9f2c41d07a3be856", "step-0000000000100-9f2c41d07a3be856",
        "step-000000000100-9F2C41D07A3BE856", "step-000000000100-9f2c41d07a3be85",
        "step-000000000100-9f2c41d07a3be856 ", "step-99999999999999999999-9f2c41d07a3be856",
        "step-00000000-100-9f2c41d07a3be856", "step-00000000010x-9f2c41d07a3be856"}) {
    EXPECT_EQ(parse_attempt_dir_name(text), std::nullopt) << text;
  }
}

TEST(ParityFileName, IsOneOfANode) {
  EXPECT_EQ(unfinished_parity_name(0x1234), "parity.0000000000001234.tmp");
  EXPECT_TRUE(is_unfinished_parity_name(unfinished_parity_name(1)));
  EXPECT_FALSE(is_unfinished_parity_name("manifest.0000000000001234.tmp"));
  EXPECT_FALSE(is_unfinished_parity_name(parity_file_name(3, 8)));
  EXPECT_EQ(parity_file_name(3, 8), "parity-00003-of-00008.safetensors");
  EXPECT_TRUE(is_parity_file_name("parity-00003-of-00008.safetensors"));
  EXPECT_TRUE(is_parity_file_name(parity_file_name(123'456, 200'000)));
  for (const std::string_view name :
       {"parity-00008-of-00008.safetensors", "parity-3-of-8.safetensors", "parity-",
        "parity-00003-of-00008", "parity-00003-of-00008.safetensors.tmp",
        "rank-00003-of-00008-0-of-1.safetensors", "parity-00003of-00008.safetensors",
        "parity--0003-of-00008.safetensors", ""}) {
    EXPECT_FALSE(is_parity_file_name(name)) << name;
  }
}

TEST(PartFileName, RoundTrips) {
  const PartName name{.rank = 0, .world_size = 4, .file = 0, .file_count = 1};
  EXPECT_EQ(sealed_file_name(name), "rank-00000-of-00004-0-of-1.safetensors");
  EXPECT_EQ(part_file_name(name), "rank-00000-of-00004-0-of-1.part");
  EXPECT_EQ(failed_file_name(name), "rank-00000-of-00004-0-of-1.failed");
  EXPECT_EQ(parse_sealed_file_name(sealed_file_name(name)), name);
  const PartName large{.rank = 123'456, .world_size = 4'294'967'295U, .file = 9, .file_count = 10};
  EXPECT_EQ(parse_sealed_file_name(sealed_file_name(large)), large);
}

TEST(PartFileName, RefusesEveryOtherSpelling) {
  for (const char* text :
       {"rank-00000-of-00004-0-of-1.part", "rank-00004-of-00004-0-of-1.safetensors",
        "rank-00000-of-00004-1-of-1.safetensors", "rank-0-of-00004-0-of-1.safetensors",
        "rank-00000-of-00004-00-of-1.safetensors", "rank-00000-of-4294967296-0-of-1.safetensors",
        "rank-00000-of-00004-0-of-1.safetensors.part", "rank--0001-of-00004-0-of-1.safetensors",
        "rank-00000-of-00000-0-of-1.safetensors", "rank-00000-of-00004.safetensors", ""}) {
    EXPECT_EQ(parse_sealed_file_name(text), std::nullopt) << text;
  }
}

TEST(GenerationFileName, RoundTripsAndRefusesOthers) {
  EXPECT_EQ(generation_file_name(2), "generation-00000002.json");
  EXPECT_EQ(parse_generation_file_name(generation_file_name(kMax)), kMax);
  for (const char* text : {"generation-2.json", "generation-000000002.json",
                           "generation-00000002.json.tmp", "generation-0000000a.json"}) {
    EXPECT_EQ(parse_generation_file_name(text), std::nullopt) << text;
  }
}

TEST(SafeName, IsOnePlainComponent) {
  EXPECT_TRUE(is_safe_name("rank-00000-of-00004-0-of-1.safetensors"));
  EXPECT_TRUE(is_safe_name("..."));
  EXPECT_TRUE(is_safe_name(std::string(128, 'a')));
  using namespace std::string_view_literals;
  for (const std::string_view name :
       {""sv, "."sv, ".."sv, "a/b"sv, "a\0b"sv, "a b"sv, "\xc3\xa4"sv}) {
    EXPECT_FALSE(is_safe_name(name)) << name;
  }
  EXPECT_FALSE(is_safe_name(std::string(129, 'a')));
}

}  // namespace
}  // namespace deepfreeze
