// RUN@best in all verbs that take a checkpoint, and the flag in ls.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/test_run.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

FixtureSave measured(std::uint64_t step, double loss, double accuracy) {
  FixtureSave save{.step = step, .ranks = {{f32_tensor("w", {static_cast<float>(step)})}}};
  save.annotations.metrics = {{"loss", loss}, {"recall@10", accuracy}};
  return save;
}

// Loss is least at 2, recall greatest at 3, and 4 is the newest.
class Best : public testing::Test {
 protected:
  void save_four(const Keep& keep) {
    run_.claim({}, keep);
    run_.save(measured(1, 3, 0.1));
    run_.save(measured(2, 1, 0.2));
    run_.save(measured(3, 2, 0.9));
    run_.save(measured(4, 2, 0.8));
  }
  [[nodiscard]] json shown_step(const std::string& tail) const {
    return call_json({"show", run_.text() + tail}).json()["checkpoint"]["step"];
  }
  [[nodiscard]] json flagged() const {
    json steps = json::array();
    const json document = call_json({"ls", run_.text()}).json();
    for (const json& one : document["checkpoints"]) {
      if (one["best"] == true) steps.push_back(one["step"]);
    }
    return steps;
  }

  RunFixture run_;
};

Keep by_recall() {
  return {.last = {}, .every = {}, .best = Keep::Best{"recall@10", Keep::Better::kMax}};
}

TEST_F(Best, IsByTheRuleThatTheRunRecordsOrByTheMetricThatIsNamed) {
  save_four(by_recall());
  EXPECT_EQ(shown_step("@best"), 3);
  EXPECT_EQ(shown_step("@best:recall@10"), 3) << "by the rule's direction";
  EXPECT_EQ(shown_step("@best:recall@10:min"), 1);
  EXPECT_EQ(shown_step("@best:loss"), 2);
  EXPECT_EQ(shown_step("@best:loss:max"), 1);
}

TEST_F(Best, IsTakenByEveryVerbThatTakesACheckpoint) {
  save_four(by_recall());
  const std::string best = run_.text() + "@best";
  EXPECT_EQ(call_json({"verify", best}).json()["attempts"][0]["step"], 3);
  EXPECT_EQ(call({"diff", best, run_.text() + "@3"}).code, 0);
  EXPECT_EQ(call({"diff", best, run_.text() + "@latest"}).code, 1);
  const std::filesystem::path file = run_.path().string() + ".safetensors";
  EXPECT_EQ(call({"export", best, file.string()}).code, 0);
  EXPECT_TRUE(std::filesystem::remove(file));
  const Answer whole = call({"ls", best});
  EXPECT_EQ(whole.code, 2);
  EXPECT_NE(whole.err.find("takes a whole run"), std::string::npos) << whole.err;
}

TEST_F(Best, IsFlaggedByLs) {
  save_four(by_recall());
  EXPECT_EQ(flagged(), json({3}));
  EXPECT_NE(call({"ls", run_.text()}).out.find("  best\n"), std::string::npos);
  run_.save(measured(5, 1, 0.95));
  EXPECT_EQ(flagged(), json({5}));
  EXPECT_NE(call({"ls", run_.text()}).out.find("newest, best"), std::string::npos);
}

TEST_F(Best, WithoutARuleIsAnErrorThatNamesTheMetrics) {
  save_four({});
  EXPECT_EQ(flagged(), json::array());
  const Answer no_rule = call({"show", run_.text() + "@best"});
  EXPECT_EQ(no_rule.code, 2);
  EXPECT_NE(no_rule.err.find("best:METRIC:min"), std::string::npos) << no_rule.err;
  EXPECT_NE(no_rule.err.find("there are loss, recall@10"), std::string::npos) << no_rule.err;
  EXPECT_EQ(shown_step("@best:loss"), 2);
  const Answer unknown = call({"show", run_.text() + "@best:los"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_NE(unknown.err.find("no checkpoint has the metric los; there are loss, recall@10"),
            std::string::npos)
      << unknown.err;
  const Answer odd = call({"show", run_.text() + "@best:"});
  EXPECT_EQ(odd.code, 2);
  EXPECT_NE(odd.err.find("'best:METRIC:min|max'"), std::string::npos) << odd.err;
}

TEST_F(Best, OfARunWithoutCheckpointsIsNotThere) {
  EXPECT_EQ(call({"show", run_.text() + "@best:loss"}).code, 3);
  EXPECT_EQ(call({"ls", run_.text()}).out, "no checkpoints\n");
}

}  // namespace
}  // namespace deepfreeze
