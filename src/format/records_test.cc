#include "format/records.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/json_parts.h"
#include "format/sealed_fixture.h"

namespace deepfreeze::records_test {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

RunRecord run_record() {
  return {.run_id = "0123456789abcdef",
          .parent = ParentPoint{.run = "../base \"run\"", .step = kMax},
          .wall_micros = -1};
}

GenerationRecord generation_record() {
  return {
      .run_id = "0123456789abcdef",
      .generation = 3,
      .claimant = kMax,
      .resumed_from = Point{.generation = 2, .step = 100, .save_index = 7, .attempt_id = 9},
      .wall_micros = std::numeric_limits<std::int64_t>::max(),
      .keep = {.last = 3, .every = kMax, .best = Keep::Best{"val: \"é\"", Keep::Better::kMax, 2}},
      .node = kMax};
}

Manifest manifest() {
  return {
      .run_id = "0123456789abcdef",
      .point = {.generation = 2, .step = 100, .save_index = 7, .attempt_id = 0x9f2c},
      .world_size = 2,
      .annotations = {.wall_micros = 12,
                      .metrics = {{"loss", 0.1}, {"zero", -0.0}, {"tiny", 5e-324}, {"big", 1e300}},
                      .tags = {{"é", "\n"}},
                      .environment = {{"torch", "2.13.0"}},
                      .parent = ParentPoint{.run = "r", .step = 1}},
      .files = {{.name = "rank-00000-of-00002-0-of-1.safetensors", .bytes = 1, .header_crc = 2},
                {.name = "rank-00001-of-00002-0-of-1.safetensors",
                 .bytes = kMax,
                 .header_crc = 0xffffffff}}};
}

// It shares a file with a checkpoint of another run.
Manifest sharing_manifest() {
  Manifest sharing = manifest();
  sharing.files[1].origin =
      Origin{.run_id = "fedcba9876543210",
             .point = {.generation = 1, .step = kMax, .save_index = 3, .attempt_id = 0x7a3b}};
  return sharing;
}

std::vector<std::string> all_records() {
  return {encode_run(run_record()), encode_generation(generation_record()),
          encode_manifest(manifest()), encode_manifest(sharing_manifest())};
}

// The answer of the decoder that takes the text; the last code if none does.
ErrorCode refusal(std::string_view text) {
  const auto code = [](const auto& result) {
    return result ? ErrorCode::kInternal : result.error().code();
  };
  if (text.contains("\"run\"")) return code(decode_run(text));
  if (text.contains("\"generation\",\"format")) return code(decode_generation(text));
  return code(decode_manifest(text));
}

// A record with one change, and a checksum that fits.
std::string changed(const std::string& text, std::string_view from, std::string_view to) {
  std::string body = text;
  body.replace(body.find(from), from.size(), to);
  auto object = nlohmann::ordered_json::parse(body);
  object.erase("crc32c");
  return seal_json(object);
}

TEST(Records, RoundTrip) {
  EXPECT_EQ(decode_run(encode_run(run_record())), run_record());
  EXPECT_EQ(decode_generation(encode_generation(generation_record())), generation_record());
  EXPECT_EQ(decode_manifest(encode_manifest(manifest())), manifest());
  EXPECT_EQ(decode_manifest(encode_manifest(sharing_manifest())), sharing_manifest());
}

TEST(Records, OfSharedFilesAreRefusedByReadersThatDoNotKnowThem) {
  EXPECT_TRUE(encode_manifest(sharing_manifest()).contains("\"format_version\":2"));
  EXPECT_TRUE(encode_manifest(manifest()).contains("\"format_version\":1"));
}

TEST(Records, SayWhoseFilesAreShared) {
  const Manifest sharing = sharing_manifest();
  EXPECT_EQ(origin_of(sharing, sharing.files[0]), (Origin{sharing.run_id, sharing.point}));
  EXPECT_EQ(origin_of(sharing, sharing.files[1]), sharing.files[1].origin);
  EXPECT_EQ(shared_bytes(sharing), kMax);
  EXPECT_EQ(shared_bytes(manifest()), 0U);
}

TEST(Records, RoundTripWithNothingInThem) {
  const RunRecord run{.run_id = "0000000000000000"};
  EXPECT_EQ(decode_run(encode_run(run)), run);
  const GenerationRecord generation{.run_id = "0000000000000000"};
  EXPECT_EQ(decode_generation(encode_generation(generation)), generation);
  const Manifest aborted{.outcome = Outcome::kAborted, .run_id = "0000000000000000"};
  EXPECT_EQ(decode_manifest(encode_manifest(aborted)), aborted);
}

TEST(Records, KeepEachRuleByItself) {
  const Keep rules[] = {{.last = 1, .every = {}, .best = {}},
                        {.last = {}, .every = 7, .best = {}},
                        {.last = {}, .every = {}, .best = Keep::Best{.metric = "loss"}}};
  for (const Keep& keep : rules) {
    GenerationRecord record = generation_record();
    record.keep = keep;
    EXPECT_EQ(decode_generation(encode_generation(record)), record);
  }
}

TEST(Records, KeepMetricsThatJsonHasNoNumberFor) {
  Manifest stored = manifest();
  stored.annotations.metrics = {
      {"nan", std::nan("")}, {"inf", INFINITY}, {"-inf", -INFINITY}, {"zero", -0.0}};
  const auto read = decode_manifest(encode_manifest(stored));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  const auto& metrics = read->annotations.metrics;
  EXPECT_TRUE(std::isnan(metrics.at("nan")));
  EXPECT_EQ(metrics.at("inf"), INFINITY);
  EXPECT_EQ(metrics.at("-inf"), -INFINITY);
  EXPECT_TRUE(std::signbit(metrics.at("zero")));
}

TEST(Records, RefuseEveryFlippedBit) {
  for (const std::string& good : all_records()) {
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string text = good;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_EQ(refusal(text), ErrorCode::kCorrupt) << bit;
    }
  }
}

TEST(Records, RefuseEveryTruncation) {
  for (const std::string& good : all_records()) {
    for (std::size_t size = 0; size < good.size(); ++size) {
      ASSERT_EQ(refusal(good.substr(0, size)), ErrorCode::kCorrupt) << size;
    }
  }
}

TEST(Records, SayThatANewerVersionWroteThem) {
  const std::string newer =
      changed(encode_run(run_record()), "\"format_version\":1", "\"format_version\":3");
  const auto read = decode_run(newer);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(read.error().message(),
            "run record: written by a newer version: its format is 3, this reader's is 2");
}

TEST(Records, IgnoreMembersThatTheyDoNotKnow) {
  const std::string more = changed(encode_manifest(manifest()), "\"files\":[{",
                                   "\"later\":{\"x\":1},\"files\":[{\"later\":2,");
  EXPECT_EQ(decode_manifest(more), manifest());
}

TEST(Records, NeedEveryMember) {
  for (const std::string& good : all_records()) {
    const auto object = nlohmann::ordered_json::parse(good);
    for (const auto& [name, value] : object.items()) {
      if (name == "crc32c" || name == "parent" || name == "resumed_from") continue;
      if (name == "keep" || name == "node") continue;
      auto lacking = object;
      lacking.erase("crc32c");
      lacking.erase(name);
      const std::string text = seal_json(lacking);
      EXPECT_FALSE(decode_run(text) || decode_generation(text) || decode_manifest(text)) << name;
    }
  }
}

TEST(Records, EveryMemberIsLookedAt) {
  for (const std::string& good : all_records()) {
    const auto object = nlohmann::ordered_json::parse(good);
    for (const auto& [name, value] : object.items()) {
      auto odd = object;
      odd.erase("crc32c");
      odd[name] = true;
      const std::string text = seal_json(odd);
      if (name == "keep") {  // a hint, of a later version perhaps: the claim counts all the same
        EXPECT_EQ(decode_generation(text).value().keep, Keep{});
        continue;
      }
      EXPECT_FALSE(decode_run(text) || decode_generation(text) || decode_manifest(text)) << name;
    }
  }
}

TEST(Records, AreNotTakenForOneAnother) {
  const auto read = decode_manifest(encode_run(run_record()));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().message(), "manifest: its kind is \"run\", not \"manifest\"");
}

TEST(Manifest, WithANaNIsEqualToItself) {
  Manifest diverged = manifest();
  diverged.annotations.metrics["loss"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(decode_manifest(encode_manifest(diverged)), diverged);
  Manifest other = diverged;
  other.annotations.metrics["loss"] = 1;
  EXPECT_NE(other, diverged);
}

TEST(Manifest, CountsValuesThatAreNotFiniteOrDoesNot) {
  Manifest counted = manifest();
  EXPECT_EQ(decode_manifest(encode_manifest(counted))->non_finite, std::nullopt);
  for (const std::uint64_t values : {std::uint64_t{0}, std::uint64_t{7}, kMax}) {
    counted.non_finite = values;
    EXPECT_EQ(decode_manifest(encode_manifest(counted)), counted);
  }
  const std::string odd =
      changed(encode_manifest(manifest()), "\"files\":[", "\"non_finite\":-1,\"files\":[");
  EXPECT_FALSE(decode_manifest(odd).has_value());
}

TEST(Manifest, NamesReplicasThatDiffer) {
  Manifest found = manifest();
  found.diverged = {{"a \"quoted\" key", {0, 4294967295}}, {"w", {3}}};
  const std::string good = encode_manifest(found);
  EXPECT_EQ(decode_manifest(good), found);
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"\"ranks\":[3]", "\"ranks\":[-3]"},    {"\"ranks\":[3]", "\"ranks\":[4294967296]"},
      {"\"ranks\":[3]", "\"ranks\":[\"3\"]"}, {"\"ranks\":[3]", "\"ranks\":3"},
      {"\"ranks\":[3]", "\"were\":[3]"},      {"\"tensor\":\"w\"", "\"tensor\":7"},
      {"\"diverged\":[", "\"diverged\":[1,"}, {"\"diverged\":", "\"diverged\":{},\"was\":"}};
  for (const auto& [from, to] : changes) {
    EXPECT_FALSE(decode_manifest(changed(good, from, to)).has_value()) << to;
  }
  found.diverged.resize(kDivergencesMax + 1, found.diverged.front());
  EXPECT_FALSE(decode_manifest(encode_manifest(found)).has_value()) << "more than is ever written";
}

TEST(Manifest, RefusesContentThatCanNotBe) {
  const std::string good = encode_manifest(manifest());
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"rank-00000-of-00002-0-of-1.safetensors", "../secret"},
      {"rank-00000-of-00002-0-of-1.safetensors", "rank-00000-of-00002-0-of-1.part"},
      {"rank-00000-of-00002-0-of-1", "rank-00001-of-00002-0-of-1"},
      {"\"name\":\"rank-00000-of-00002-0-of-1.safetensors\"", "\"name\":0"},
      {"\"committed\"", "\"aborted\""},
      {"\"committed\"", "\"perhaps\""},
      {"\"bytes\":1,", "\"bytes\":-1,"},
      {"\"bytes\":1,", "\"bytes\":1.0,"},
      {"\"header_crc\":\"00000002\"", "\"header_crc\":\"2\""},
      {"\"header_crc\":\"00000002\"", "\"header_crc\":2"},
      {"\"world_size\":2", "\"world_size\":4294967296"},
      {"\"0123456789abcdef\"", "\"0123456789abcde\""},
      {"\"0123456789abcdef\"", "\"0123456789ABCDEF\""},
      {"\"loss\":0.1", "\"loss\":\"much\""},
      {"\"torch\":\"2.13.0\"", "\"torch\":2"},
      {"\"parent\":{", "\"parent\":{\"step\":1},\"was\":{"}};
  for (const auto& [from, to] : changes) {
    const auto read = decode_manifest(changed(good, from, to));
    ASSERT_FALSE(read.has_value()) << to;
    EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt) << to;
  }
  EXPECT_TRUE(decode_manifest(changed(good, "\"loss\":0.1", "\"loss\":1")).has_value());
}

std::string cause_of(std::string_view manifest_text) {
  const auto read = decode_manifest(manifest_text);
  return read ? "accepted" : read.error().message();
}

TEST(Manifest, NamesTheFirstThingWrong) {
  const std::string good = encode_manifest(manifest());
  EXPECT_TRUE(cause_of(changed(good, "\"format_version\":1", "\"format_version\":0"))
                  .contains("there is no format version 0"));
  auto object = nlohmann::ordered_json::parse(good);
  object.erase("crc32c");
  object["files"] = {{"first", object["files"][0]}, {"second", object["files"][1]}};
  EXPECT_TRUE(cause_of(seal_json(object)).contains("member \"files\" is not an array"));
  object["files"] = std::vector<int>(kManifestFilesMax + 1);
  EXPECT_TRUE(cause_of(seal_json(object)).contains("1000001 files are too many"));
  EXPECT_TRUE(cause_of(std::string(kSealedJsonBytesMax + 1, ' ')).contains("bytes are too many"));
  EXPECT_TRUE(cause_of(good.substr(0, 15)).contains("its checksum does not match"));
}

}  // namespace
}  // namespace deepfreeze::records_test
