// explain-divergence: the step, the kind of state and the cause that it names.
#include <gtest/gtest.h>

#include "cli/test_run.h"
#include "format/sealed_fixture.h"
#include "inspect/divergence.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

// One step of a training, in which each kind of state can be changed by itself.
struct Step {
  std::vector<float> weight = {1, 2, 3};
  std::vector<float> running_mean = {4, 5};
  std::vector<float> moment = {6, 7};
  std::string learning_rate = "0.5";
  std::string words = "AAAA";
  int yielded = 3;
  int epoch = 1;
  std::string threads = "2";

  [[nodiscard]] std::string tree() const {
    return R"({"epoch":)" + std::to_string(epoch) +
           R"(,"loader":{"$":"object","t":"stateful","v":{"_num_yielded":)" +
           std::to_string(yielded) +
           R"(}},"net":{"$":"object","t":"module","v":{"w":{"$":"tensor","k":"net.w"}}},)"
           R"("optim":{"$":"object","t":"optimizer","v":{"param_groups":[{"lr":)" +
           learning_rate +
           R"(}]}},"rng":{"$":"object","t":"stateful","v":{"python":{"words":{"$":"bytes","v":")" +
           words + R"("}}}}})";
  }
  [[nodiscard]] FixtureSave save(std::uint64_t step) const {
    FixtureSave saved{.step = step, .ranks = {{f32_tensor("net.w", weight)}}, .tree = tree()};
    saved.ranks[0].push_back(f32_tensor("net.norm.running_mean", running_mean));
    saved.ranks[0].push_back(f32_tensor("optim.w.exp_avg", moment));
    saved.annotations.environment = {{"torch", "2.13.0"}, {"num_threads", threads}};
    return saved;
  }
};

class ExplainDivergence : public testing::Test {
 protected:
  // Both runs have steps 1 and 2 alike; the second run's step 3 is `other`.
  Answer differ_by(const Step& other) {
    for (const std::uint64_t step : {1U, 2U}) save_both(step);
    a_.save(Step().save(3));
    b_.save(other.save(3));
    return call_json({"explain-divergence", a_.text(), b_.text()});
  }
  void save_both(std::uint64_t step) {
    a_.save(Step().save(step));
    b_.save(Step().save(step));
  }
  static std::vector<std::string> kinds(const Answer& answer) {
    std::vector<std::string> names;
    const json document = answer.json();
    for (const json& each : document["divergence"]["kinds"]) names.push_back(each["kind"]);
    return names;
  }
  static std::string cause(const Answer& answer) { return answer.json()["divergence"]["cause"]; }

  RunFixture a_;
  RunFixture b_;
};

using Names = std::vector<std::string>;

TEST_F(ExplainDivergence, SaysWhereAllIsEqual) {
  save_both(1);
  save_both(4);
  a_.save(Step().save(5));
  const Answer answer = call_json({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["common_steps"], 2);
  EXPECT_EQ(answer.json()["equal_through"], 4);
  EXPECT_FALSE(answer.json().contains("divergence"));
  const Answer text = call({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(text.out, "equal at all 2 steps that both have, through step 4\n");
}

TEST_F(ExplainDivergence, NamesRandomNumbersBeforeTheWeightsThatFollowFromThem) {
  const Answer answer = differ_by({.weight = {1, 2, 9}, .words = "AAAB"});
  EXPECT_EQ(answer.code, 1) << answer.err;
  EXPECT_EQ(answer.json()["equal_through"], 2);
  EXPECT_EQ(answer.json()["divergence"]["step"], 3);
  EXPECT_EQ(kinds(answer), (Names{"random generators", "weights"}));
  EXPECT_EQ(answer.json()["divergence"]["kinds"][0]["first"], "rng.python.words");
  EXPECT_EQ(answer.json()["divergence"]["kinds"][1]["tensors"], 1);
  EXPECT_NE(cause(answer).find("random numbers were drawn"), std::string::npos);
}

TEST_F(ExplainDivergence, NamesDataAndHyperparameters) {
  const Answer answer = differ_by({.words = "AAAB", .yielded = 4});
  EXPECT_EQ(kinds(answer), (Names{"data position", "random generators"}));
  EXPECT_NE(cause(answer).find("data come from another position"), std::string::npos);
}

TEST_F(ExplainDivergence, NamesOptionsOfAnOptimizer) {
  const Answer answer = differ_by({.moment = {6, 8}, .learning_rate = "0.25"});
  EXPECT_EQ(kinds(answer), (Names{"hyperparameters", "optimizer state"}));
  EXPECT_EQ(answer.json()["divergence"]["kinds"][0]["first"], "optim.param_groups.0.lr");
  EXPECT_NE(cause(answer).find("options of the optimizer"), std::string::npos);
}

TEST_F(ExplainDivergence, TellsRoundingFromMore) {
  const Answer rounding = differ_by({.weight = {1.00001F, 2, 3}, .running_mean = {4.00001F, 5}});
  EXPECT_EQ(kinds(rounding), (Names{"forward statistics", "weights"}));
  EXPECT_NE(cause(rounding).find("by rounding alone"), std::string::npos);
}

TEST_F(ExplainDivergence, TellsMoreFromRounding) {
  const Answer more = differ_by({.weight = {1.5F, 2, 3}, .running_mean = {4.00001F, 5}});
  EXPECT_NE(cause(more).find("by more than rounding"), std::string::npos);
}

TEST_F(ExplainDivergence, NamesOneElementAlone) {
  const Answer answer = differ_by({.weight = {1, 2, 4}});
  EXPECT_EQ(answer.json()["divergence"]["elements"], 1);
  EXPECT_NE(cause(answer).find("flipped a bit"), std::string::npos);
}

TEST_F(ExplainDivergence, NamesPlainValues) {
  const Answer answer = differ_by({.epoch = 2});
  EXPECT_EQ(kinds(answer), Names{"other state"});
  EXPECT_NE(cause(answer).find("only plain values"), std::string::npos);
  EXPECT_EQ(answer.json()["equal_through"], 2);
  EXPECT_FALSE(answer.json().contains("values_differ"));
}

TEST_F(ExplainDivergence, LooksBehindClocksForWhatMatters) {
  for (const std::uint64_t step : {1U, 2U, 3U}) {
    a_.save(Step{.epoch = 1}.save(step));
    b_.save(Step{.weight = {1, step == 3 ? 5.0F : 2, 3}, .words = "AAAA", .epoch = 8}.save(step));
  }
  const Answer answer = call_json({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(answer.json()["equal_through"], 2);
  EXPECT_EQ(answer.json()["divergence"]["step"], 3);
  EXPECT_EQ(answer.json()["values_differ"], (json{{"step", 1}, {"first", "epoch"}}));
  EXPECT_NE(cause(answer).find("by more than rounding"), std::string::npos);
  const Answer text = call({"explain-divergence", a_.text(), b_.text()});
  EXPECT_TRUE(text.says("plain values differ from step 1 on: epoch\n")) << text.out;
}

TEST_F(ExplainDivergence, NotANumberIsNoRounding) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Answer answer = differ_by({.weight = {nan, nan, 3}});
  EXPECT_EQ(answer.json()["divergence"]["l2_relative"], "inf");
  EXPECT_NE(cause(answer).find("by more than rounding"), std::string::npos);
}

TEST_F(ExplainDivergence, AnotherShapeIsNoPlainValue) {
  const Answer answer = differ_by({.weight = {1, 2}});
  EXPECT_EQ(kinds(answer), Names{"weights"});
  EXPECT_NE(cause(answer).find("by more than rounding"), std::string::npos);
}

TEST_F(ExplainDivergence, OneElementBesideValuesIsNoFlippedBit) {
  const Answer answer = differ_by({.moment = {6, 8}, .learning_rate = "0.5", .epoch = 2});
  EXPECT_EQ(answer.json()["divergence"]["elements"], 1);
  EXPECT_EQ(cause(answer).find("flipped a bit"), std::string::npos);
}

TEST_F(ExplainDivergence, ComparesWhatEachRankHas) {
  FixtureSave save = Step().save(1);
  save.ranks.push_back({});
  save.tree_of_others = R"({"own":1})";
  a_.save(save);
  save.tree_of_others = R"({"own":2})";
  b_.save(save);
  const Answer answer = call_json({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(answer.code, 1) << answer.out;
  EXPECT_EQ(answer.json()["divergence"]["kinds"][0]["first"], "@rank00001.own");
}

TEST_F(ExplainDivergence, NamesTheEnvironmentToo) {
  Step other{.weight = {1, 2, 4}};
  other.threads = "1\x1b";
  differ_by(other);
  const Answer text = call({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(text.code, 1);
  EXPECT_TRUE(text.says("equal through step 2, different at step 3\n")) << text.out;
  EXPECT_TRUE(text.says("environment: num_threads 2 / 1\\x1b\n")) << text.out;
  EXPECT_FALSE(text.says("torch")) << "that is equal";
}

TEST_F(ExplainDivergence, SaysWhereNothingIsKnownToBeEqual) {
  a_.save(Step().save(5));
  b_.save(Step{.weight = {0, 0, 0}}.save(5));
  const Answer text = call({"explain-divergence", a_.text(), b_.text()});
  EXPECT_TRUE(text.says("different at step 5, the first that both have\n")) << text.out;
  EXPECT_TRUE(text.says("other seeds, first weights")) << text.out;
}

TEST_F(ExplainDivergence, ComparesWhatTheLinePassedThrough) {
  const Manifest first = a_.save(Step().save(1));
  a_.save(Step{.epoch = 9}.save(2));  // abandoned
  a_.claim(first.point);
  a_.save(Step().save(3));
  for (const std::uint64_t step : {1U, 2U, 3U}) b_.save(Step().save(step));
  const Answer answer = call_json({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["common_steps"], 2);
}

TEST_F(ExplainDivergence, RunsWithoutACommonStepCanNotBeCompared) {
  a_.save(Step().save(1));
  b_.save(Step().save(2));
  const Answer answer = call({"explain-divergence", a_.text(), b_.text()});
  EXPECT_EQ(answer.code, 3);
  EXPECT_NE(answer.err.find("no step that both have"), std::string::npos) << answer.err;
  EXPECT_EQ(call({"explain-divergence", a_.text() + "@1", b_.text()}).code, 2);
}

TEST(StateKinds, KnowsRanksOwnKeysAndDoubles) {
  const auto kinds = must(StateKinds::of(Step().tree()));
  EXPECT_EQ(kinds.of_path("@rank00003.rng.torch"), StateKind::kRandom);
  EXPECT_EQ(kinds.of_path("net.w~2"), StateKind::kWeights);
  EXPECT_EQ(kinds.of_path("netto"), StateKind::kOther);
}

TEST(StateKinds, KnowsWhatATrainerAndAWholeModelHold) {
  const auto kinds = must(StateKinds::of(
      R"({"loops":{"$":"object","t":"stateful","v":{"fit":{"_num_yielded":3},"epoch":1}},)"
      R"("model":{"$":"object","t":"keras","v":{"variables":{}}},)"
      R"("key":{"$":"object","t":"prng_key","v":{"impl":"x"}}})"));
  EXPECT_EQ(kinds.of_path("loops.fit._num_yielded"), StateKind::kData);
  EXPECT_EQ(kinds.of_path("loops.epoch"), StateKind::kOther);
  EXPECT_EQ(kinds.of_path("model.variables.0.dense/kernel"), StateKind::kWeights);
  EXPECT_EQ(kinds.of_path("model.variables.6.seed_generator/state"), StateKind::kRandom);
  EXPECT_EQ(kinds.of_path("model.optimizer.2.adam/kernel_momentum"), StateKind::kOptimizer);
  EXPECT_EQ(kinds.of_path("model.metrics.0.loss/total"), StateKind::kOther);
  EXPECT_EQ(kinds.of_path("key.data"), StateKind::kRandom);
}

}  // namespace
}  // namespace deepfreeze
