// Each hostile file stands in a run above a good checkpoint: it is refused for its own reason, by
// its name, and a restore falls back to the good one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "attacks/attack.h"
#include "attacks/victim.h"
#include "base/log.h"
#include "crash/attempt_maker.h"
#include "format/base64.h"
#include "format/header_fixture.h"
#include "fuzz/framed.h"
#include "manifest/history.h"
#include "restore/snapshot.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

ReadSettings one_thread() { return {.thread_count = 1, .on_progress = {}}; }

// The error that a reader gets for the victim: from the listing, else from opening it.
std::optional<Error> refusal_of_victim(SimDisk& disk) {
  const auto listing = read_run(disk);
  if (!listing) return listing.error();
  for (const AttemptState& attempt : listing->attempts) {
    if (attempt.name != kNewAttempt) continue;
    if (attempt.fault) return attempt.fault;
    const auto opened = Snapshot::open(disk, attempt.manifest.value());
    if (!opened) return opened.error();
  }
  return std::nullopt;
}

void expect_refused(SimDisk& disk, const Attack& attack, std::string_view file) {
  const auto error = refusal_of_victim(disk);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), attack.code) << error->message();
  EXPECT_TRUE(error->message().contains(attack.says)) << error->message();
  EXPECT_TRUE(error->message().contains(file)) << error->message();
}

// A run with records of a newer version is refused as a whole: the good step may not be newest.
void expect_fallback(SimDisk& disk) {
  const auto listing = read_run(disk);
  ASSERT_TRUE(listing.has_value()) << listing.error().message();
  EXPECT_EQ(newest_first(*listing).back(), good_manifest());
  const auto faults = verify_attempt(disk, good_manifest(), one_thread());
  EXPECT_TRUE(faults && faults->empty());
}

class HostileFiles : public testing::Test {
 protected:
  HostileFiles() {
    set_log_sink([this](std::string_view line) { warnings_.emplace_back(line); });
  }
  ~HostileFiles() override { set_log_sink({}); }

  Victim victim_ = make_victim();
  std::vector<std::string> warnings_;
};

TEST_F(HostileFiles, TheVictimIsGoodBeforeItIsAttacked) {
  EXPECT_FALSE(refusal_of_victim(*victim_.disk).has_value());
  forge_header(victim_, victim_header());
  EXPECT_FALSE(refusal_of_victim(*victim_.disk).has_value());
  expect_fallback(*victim_.disk);
}

TEST_F(HostileFiles, Headers) {
  for (const Attack& attack : header_attacks()) {
    SCOPED_TRACE(attack.tries);
    victim_ = make_victim();
    forge_header(victim_, attacked(victim_header(), attack));
    expect_refused(*victim_.disk, attack, victim_.manifest.files.front().name);
    expect_fallback(*victim_.disk);
  }
}

TEST_F(HostileFiles, Manifests) {
  for (const Attack& attack : manifest_attacks()) {
    SCOPED_TRACE(attack.tries);
    victim_ = make_victim();
    const std::string text = framed_record(attacked(victim_manifest(), attack));
    victim_.disk->plant(victim_manifest_path(), text);
    const bool is_listed = decode_manifest(text).has_value();
    expect_refused(*victim_.disk, attack, is_listed ? "" : victim_manifest_path());
    if (read_run(*victim_.disk)) expect_fallback(*victim_.disk);
  }
}

// They are a hint for readers, perhaps of a later version; the claim fences all the same.
TEST_F(HostileFiles, RulesThatCantBeReadCostNoClaim) {
  const std::string number = R"("generation":2)";
  for (const std::string rules :
       {"[]", R"({"last":0})", R"({"best":{"metric":"a","better":"up","count":1}})",
        R"({"best":{"metric":"a","better":"min","count":0}})"}) {
    SCOPED_TRACE(rules);
    const std::string text = framed_record(
        replaced(victim_claim(), number, fmt::format(R"("keep":{},{})", rules, number)));
    const auto record = decode_generation(text);
    ASSERT_TRUE(record.has_value()) << record.error().message();
    EXPECT_EQ(record->generation, 2U);
    EXPECT_EQ(record->keep, Keep{});
  }
}

// A claim that does not verify is still a claim.
TEST_F(HostileFiles, Claims) {
  for (const Attack& attack : claim_attacks()) {
    SCOPED_TRACE(attack.tries);
    const std::string text = framed_record(attacked(victim_claim(), attack));
    const auto record = decode_generation(text);
    ASSERT_FALSE(record.has_value());
    EXPECT_EQ(record.error().code(), attack.code);
    EXPECT_TRUE(record.error().message().contains(attack.says)) << record.error().message();
    victim_.disk->plant(victim_claim_path(), text);
    const auto listing = read_run(*victim_.disk);
    ASSERT_EQ(code_of(listing) == ErrorCode::kUnsupported, attack.code == ErrorCode::kUnsupported);
    if (!listing) {
      EXPECT_TRUE(listing.error().message().contains(victim_claim_path()));
      continue;
    }
    EXPECT_EQ(highest_generation(*listing), kVictimGeneration);
    EXPECT_FALSE(listing->claims.back().record.has_value());
    expect_fallback(*victim_.disk);
  }
}

TEST_F(HostileFiles, AClaimUnderAnotherNumberIsNotBelieved) {
  victim_.disk->plant(generation_file_name(5), victim_claim());
  const auto listing = read_run(*victim_.disk);
  ASSERT_TRUE(listing.has_value());
  EXPECT_EQ(highest_generation(*listing), 5U);
  EXPECT_FALSE(listing->claims.back().record.has_value());
}

TEST_F(HostileFiles, RunFiles) {
  for (const Attack& attack : run_file_attacks()) {
    SCOPED_TRACE(attack.tries);
    warnings_.clear();
    victim_.disk->plant(kRunFile, framed_record(attacked(victim_run_file(), attack)));
    const auto listing = read_run(*victim_.disk);
    ASSERT_EQ(code_of(listing) == ErrorCode::kUnsupported, attack.code == ErrorCode::kUnsupported);
    const std::string said = listing ? warnings_.at(0) : listing.error().message();
    EXPECT_TRUE(said.contains(attack.says) && said.contains(kRunFile)) << said;
    if (listing) expect_fallback(*victim_.disk);
  }
}

// Restored as the newest step it would be a state of nothing.
TEST_F(HostileFiles, ACheckpointOfNoRanksAndNoFilesIsNone) {
  victim_.manifest.world_size = 0;
  victim_.manifest.files.clear();
  victim_.disk->plant(victim_manifest_path(), encode_manifest(victim_.manifest));
  const auto error = refusal_of_victim(*victim_.disk);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(error->message().contains("no ranks")) << error->message();
  expect_fallback(*victim_.disk);
}

TEST_F(HostileFiles, ANameThatIsTooLongIsRefused) {
  std::string text = victim_header();
  text.replace(text.find("weights_0_0"), 11, std::string(kKeyBytesMax + 1, 'k'));
  forge_header(victim_, text);
  const auto error = refusal_of_victim(*victim_.disk);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(error->message().contains("its key has 4097 bytes")) << error->message();
}

TEST_F(HostileFiles, AFileNameThatIsTooLongIsRefused) {
  victim_.manifest.files.front().name = std::string(300, 'x') + ".safetensors";
  victim_.disk->plant(victim_manifest_path(), encode_manifest(victim_.manifest));
  EXPECT_EQ(refusal_of_victim(*victim_.disk)->code(), ErrorCode::kCorrupt);
}

TEST_F(HostileFiles, AMillionFilesAreCountedBeforeTheyAreRead) {
  std::string files = R"("files":[0)";
  for (std::size_t i = 0; i < kManifestFilesMax; ++i) files += ",0";
  files += R"(],"was":[)";
  const auto read =
      decode_manifest(framed_record(replaced(victim_manifest(), R"("files":[)", files)));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().message(), "manifest: 1000001 files are too many");
}

// Committed with it, the step would be acknowledged and could not be opened.
TEST_F(HostileFiles, AFileTooManyKeepsAnAttemptFromBeingCommitted) {
  for (const PartName& one_more :
       {PartName{.rank = 0, .world_size = 1, .file = 0, .file_count = 2},
        PartName{.rank = 0, .world_size = 1, .file = 1, .file_count = 2}}) {
    Identity identity =
        make_identity(std::string(kPlantedRunId), {kVictimGeneration, 11, 3, 11 + one_more.file});
    ASSERT_TRUE(begin_attempt(*victim_.disk, name_of(identity)));
    ASSERT_TRUE(write_and_seal(*victim_.disk, identity));
    identity.part = one_more;
    ASSERT_TRUE(write_and_seal(*victim_.disk, identity));
    identity.part = {};
    const auto committed = commit_attempt(*victim_.disk, make_request(identity));
    ASSERT_FALSE(committed.has_value());
    EXPECT_EQ(committed.error().code(), ErrorCode::kMismatch);
    EXPECT_TRUE(committed.error().message().contains("is one file too many"));
    expect_fallback(*victim_.disk);
  }
}

// The chain of resumed-from points ends, wherever its claims point.
TEST_F(HostileFiles, ClaimsThatResumeFromThemselvesOrTheFutureEndTheLine) {
  auto claim = *decode_generation(victim_claim());
  for (const std::uint64_t from : {kVictimGeneration, std::uint64_t{99}, ~std::uint64_t{0}}) {
    claim.resumed_from->generation = from;
    victim_.disk->plant(victim_claim_path(), encode_generation(claim));
    const auto listing = read_run(*victim_.disk);
    ASSERT_TRUE(listing.has_value());
    EXPECT_TRUE(on_current_line(*listing, victim_.manifest.point));
    EXPECT_FALSE(on_current_line(*listing, good_manifest().point));
  }
}

TEST(Base64Lies, AreRefused) {
  using namespace std::string_view_literals;
  for (const std::string_view lie :
       {"="sv, "===="sv, "A==="sv, "AA=A"sv, "AA==AA=="sv, "AAA=AAAA"sv, "AAA\n"sv, " AAA"sv,
        "AAA\0"sv, "AA-_"sv, "AA\xc3\xa4"sv, "AAAAA"sv, "AAAAA==="sv}) {
    EXPECT_EQ(decode_base64(lie), std::nullopt) << lie;
  }
}

}  // namespace
}  // namespace deepfreeze
