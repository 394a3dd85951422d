// flush, fetch and tiers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/fail_point.h"
#include "cli/test_run.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class FlushVerbTest : public testing::Test {
 protected:
  FlushVerbTest() {
    for (const std::uint64_t step : {1U, 2U, 3U}) {
      run_.save({.step = step, .ranks = {{f32_tensor("w", {static_cast<float>(step)})}}});
    }
    far_ = run_.text() + "-far";
  }
  ~FlushVerbTest() override { fs::remove_all(far_); }

  static std::vector<int> steps(const Answer& answer, const char* list) {
    std::vector<int> steps;
    const json document = answer.json();
    for (const json& one : document[list]) steps.push_back(one["step"]);
    return steps;
  }

  RunFixture run_;
  std::string far_;
};

TEST_F(FlushVerbTest, BringsWhatIsMissingNewestFirst) {
  const Answer first = call_json({"flush", run_.text(), far_});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(steps(first, "copied"), (std::vector<int>{3, 2, 1}));
  EXPECT_GT(first.json()["bytes"], 0);
  EXPECT_EQ(call({"verify", "--deep", far_}).code, 0);
  const Answer again = call({"flush", run_.text(), far_});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(again.says("has all that it is to have"));
}

TEST_F(FlushVerbTest, BringsOnlyStepsThatAreMeant) {
  EXPECT_EQ(steps(call_json({"flush", run_.text(), far_, "--every", "2"}), "copied"),
            std::vector<int>{2});
}

TEST_F(FlushVerbTest, RefusesATierOfAnotherRun) {
  RunFixture other;
  const Answer answer = call({"flush", run_.text(), other.text()});
  EXPECT_NE(answer.code, 0);
  EXPECT_NE(answer.err.find("each run needs"), std::string::npos) << answer.err;
}

TEST_F(FlushVerbTest, FetchBringsOneBack) {
  ASSERT_EQ(call({"flush", run_.text(), far_}).code, 0);
  const std::string fresh = far_ + "-fetched";
  const Answer answer = call_json({"fetch", far_ + "@2", fresh});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(steps(answer, "copied"), std::vector<int>{2});
  EXPECT_EQ(steps(call_json({"ls", fresh}), "checkpoints"), std::vector<int>{2});
  EXPECT_EQ(call({"verify", "--deep", fresh}).code, 0);
  fs::remove_all(fresh);
}

TEST_F(FlushVerbTest, ADamagedCheckpointIsNotCopied) {
  for (const auto& entry : fs::recursive_directory_iterator(run_.text())) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x77');
  }
  const Answer answer = call({"flush", run_.text(), far_});
  EXPECT_NE(answer.code, 0);
  EXPECT_NE(answer.err.find("does not verify"), std::string::npos) << answer.err;
  const json there = call_json({"ls", far_}).json();
  for (const json& one : there["checkpoints"]) EXPECT_EQ(one["flag"], "undecided");
}

TEST_F(FlushVerbTest, TiersShowsWhichCheckpointLiesWhere) {
  ASSERT_EQ(call({"flush", run_.text(), far_, "--every", "2"}).code, 0);
  const Answer answer = call_json({"tiers", run_.text(), far_});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(steps(answer, "checkpoints"), (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(answer.json()["checkpoints"][0]["states"], (json{"committed", "-"}));
  EXPECT_EQ(answer.json()["checkpoints"][1]["states"], (json{"committed", "committed"}));
  const Answer table = call({"tiers", run_.text(), far_});
  EXPECT_TRUE(table.says("committed"));
  EXPECT_TRUE(table.says(far_));
}

TEST_F(FlushVerbTest, ATierWithoutARunHasNothing) {
  fs::create_directories(far_);
  const Answer answer = call_json({"tiers", run_.text(), far_});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["checkpoints"][0]["states"], (json{"committed", "-"}));
}

TEST_F(FlushVerbTest, GcLeavesWhatATierWaitsFor) {
  ASSERT_EQ(call({"flush", run_.text(), far_, "--every", "2"}).code, 0);
  const std::vector<std::string> gc = {"gc", run_.text(), "--keep-last", "1", "--tier", far_};
  const Answer answer = call_json(gc);
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["removed"].size(), 1U);
  EXPECT_EQ(answer.json()["waiting_for_tier"].size(), 1U);
  EXPECT_EQ(steps(call_json({"ls", run_.text()}), "checkpoints"), (std::vector<int>{3, 1}));
  EXPECT_TRUE(call(gc).says("a tier waits for it"));
  // Step 1 was never meant for it.
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1", "--tier-every", "2", "--tier", far_}).code,
            0);
  EXPECT_EQ(steps(call_json({"ls", run_.text()}), "checkpoints"), std::vector<int>{3});
}

TEST_F(FlushVerbTest, GcDeletesNothingForATierThatHasNothingOrAnotherRun) {
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1", "--tier", far_}).code, 0);
  RunFixture other;
  EXPECT_NE(call({"gc", run_.text(), "--keep-last", "1", "--tier", other.text()}).code, 0);
  EXPECT_EQ(steps(call_json({"ls", run_.text()}), "checkpoints"), (std::vector<int>{3, 2, 1}));
}

// Its process may have died before its last sync: a power cut would take it back.
TEST_F(FlushVerbTest, GcDoesNotCountACopyThatCantBeSynced) {
  ASSERT_EQ(call({"flush", run_.text(), far_}).code, 0);
  const std::vector<std::string> gc = {"gc", run_.text(), "--keep-last", "1", "--tier", far_};
  ASSERT_TRUE(fail_points::arm("tier.settled=error"));
  const Answer answer = call_json(gc);
  fail_points::disarm();
  EXPECT_EQ(answer.json()["removed"].size() + answer.json()["waiting_for_tier"].size(), 2U);
  EXPECT_GE(answer.json()["waiting_for_tier"].size(), 1U);
  EXPECT_EQ(call_json(gc).json()["waiting_for_tier"].size(), 0U);
}

// As before there were tiers: nothing in a run tells of them.
TEST_F(FlushVerbTest, GcThatIsGivenNoTierDeletesByTheRulesAlone) {
  EXPECT_EQ(call_json({"gc", run_.text(), "--keep-last", "1"}).json()["removed"].size(), 2U);
}

}  // namespace
}  // namespace deepfreeze
