// diff, verify, gc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cli/test_run.h"
#include "manifest/retention.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

FixtureSave save_of(std::uint64_t step, std::vector<OwnedTensor> tensors, std::string tree = {}) {
  return {.step = step, .ranks = {std::move(tensors)}, .tree = std::move(tree)};
}

std::string at(const RunFixture& run, std::uint64_t step) {
  return run.text() + "@" + std::to_string(step);
}

TEST(Diff, EqualCheckpointsAreGood) {
  RunFixture run;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  run.save(save_of(1, {f32_tensor("w", {1, nan})}, R"({"lr":1})"));
  run.save(save_of(2, {f32_tensor("w", {1, nan})}, R"({"lr":1})"));
  const Answer answer = call_json({"diff", at(run, 1), at(run, 2)});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["equal_tensors"], 1);
  EXPECT_TRUE(answer.json()["tensors"].empty());
  EXPECT_EQ(call_json({"diff", at(run, 1), at(run, 2), "--all"}).json()["tensors"][0]["result"],
            "equal");
}

TEST(Diff, SaysWhichTensorsDifferAndByHowMuch) {
  RunFixture run;
  run.save(save_of(1, {f32_tensor("gone", {1}), f32_tensor("shape", {1}), f32_tensor("w", {3, 4}),
                       f32_tensor("z", {0})}));
  run.save(save_of(2, {f32_tensor("new", {1}), f32_tensor("shape", {1, 2}), f32_tensor("w", {3, 3}),
                       f32_tensor("z", {0})}));
  const Answer answer = call_json({"diff", at(run, 1), at(run, 2)});
  EXPECT_EQ(answer.code, 1) << answer.err;
  const json tensors = answer.json()["tensors"];
  ASSERT_EQ(tensors.size(), 4U) << tensors;
  EXPECT_EQ(tensors[0]["result"], "only in A");
  EXPECT_EQ(tensors[1]["result"], "only in B");
  EXPECT_EQ(tensors[2]["result"], "F32 [1] / F32 [2]");
  EXPECT_EQ(tensors[3]["max_abs"], 1);
  EXPECT_EQ(tensors[3]["l2_relative"], 0.2);
  EXPECT_EQ(tensors[3]["differing"], 1);
  const Answer table = call({"diff", at(run, 1), at(run, 2)});
  EXPECT_EQ(table.code, 1);
  EXPECT_TRUE(table.says("1 of 2")) << table.out;
  EXPECT_TRUE(table.says("4 of 5 tensors and 0 objects differ")) << table.out;
}

TEST(Diff, ComparesObjectsToo) {
  RunFixture run;
  const std::string head(100, 'x');  // the values differ beyond the part that is shown
  run.save(save_of(1, {f32_tensor("w", {1})}, R"({"a":1,"lr":0.5})"));
  run.save(save_of(2, {f32_tensor("w", {1})}, R"({"b":1,"lr":0.25})"));
  run.save(save_of(3, {f32_tensor("w", {1})}, R"({"s":")" + head + R"(1"})"));
  run.save(save_of(4, {f32_tensor("w", {1})}, R"({"s":")" + head + R"(2"})"));
  const json objects = call_json({"diff", at(run, 1), at(run, 2)}).json()["objects"];
  ASSERT_EQ(objects.size(), 3U) << objects;
  EXPECT_EQ(objects[1], (json{{"path", "lr"}, {"a", "float 0.5"}, {"b", "float 0.25"}}));
  EXPECT_EQ(call({"diff", at(run, 1), at(run, 2)}).code, 1);
  EXPECT_EQ(call({"diff", at(run, 3), at(run, 4)}).code, 1) << "though both look alike in short";
}

TEST(Diff, ComparesCheckpointsOfTwoRuns) {
  RunFixture a;
  RunFixture b;
  a.save(save_of(1, {f32_tensor("w", {1})}));
  b.save(save_of(8, {f32_tensor("w", {1})}));
  const Answer answer = call_json({"diff", a.text(), b.text()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.json()["a"]["id"], answer.json()["b"]["id"]);
  EXPECT_EQ(answer.json()["b"]["step"], 8);
}

TEST(VerifyVerb, GoodRunIsGood) {
  RunFixture run;
  run.save(save_of(1, {random_tensor("w", DType::kU8, {200'000}, 1)}));
  run.save(save_of(2, {random_tensor("w", DType::kU8, {200'000}, 2)}));
  const Answer answer = call_json({"verify", run.text()});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["good"], true);
  EXPECT_EQ(answer.json()["attempts"].size(), 2U);
  EXPECT_TRUE(call({"verify", run.text()}).says(" ok ")) << answer.out;
  EXPECT_EQ(answer.err, "") << "no progress bar where nobody looks";
}

TEST(VerifyVerb, NamesFileBlocksAndTensorsOfAFault) {
  RunFixture run;
  run.save(save_of(1, {random_tensor("w", DType::kU8, {200'000}, 1)}));
  const Manifest bad = run.save(save_of(2, {random_tensor("w", DType::kU8, {200'000}, 2)}));
  flip_bit(run.file_path(bad, bad.files[0].name), bad.files[0].bytes * 8 - 1);
  const Answer answer = call_json({"verify", run.text()});
  EXPECT_EQ(answer.code, 1) << answer.err;
  const json attempts = answer.json()["attempts"];
  EXPECT_TRUE(attempts[0]["faults"].empty());
  ASSERT_EQ(attempts[1]["faults"].size(), 1U);
  const json fault = attempts[1]["faults"][0];
  EXPECT_EQ(fault["file"], bad.files[0].name);
  EXPECT_EQ(fault["blocks"], json({3}));
  EXPECT_EQ(fault["tensors"], json({"w"}));
  EXPECT_EQ(call({"verify", at(run, 1)}).code, 0);
  EXPECT_EQ(call({"verify", at(run, 2)}).code, 1);
  EXPECT_EQ(call({"verify", run.text() + "@latest"}).code, 1);
  EXPECT_TRUE(call({"verify", run.text()}).says("blocks 3\n    tensors w")) << answer.out;
}

TEST(VerifyVerb, DamagedManifestRunFileAndClaimAreFaults) {
  RunFixture run;
  const Manifest manifest = run.save(save_of(1, {f32_tensor("w", {1})}));
  for (const std::filesystem::path& file :
       {run.file_path(manifest, "manifest.json"), run.path() / "deepfreeze.json",
        run.path() / generation_file_name(1)}) {
    flip_bit(file, 8 * 30);
    const Answer answer = call_json({"verify", run.text()});
    EXPECT_EQ(answer.code, 1) << file << answer.out << answer.err;
    flip_bit(file, 8 * 30);
  }
  EXPECT_EQ(call({"verify", run.text()}).code, 0);
}

TEST(VerifyVerb, UndecidedAttemptIsANote) {
  RunFixture run;
  run.save(save_of(1, {f32_tensor("w", {1})}));
  run.write_undecided(save_of(2, {f32_tensor("w", {1})}));
  const Answer answer = call_json({"verify", run.text()});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(answer.json()["notes"].size(), 1U);
  EXPECT_EQ(call({"verify", at(run, 2)}).code, 3) << "nothing is promised at step 2";
}

TEST(VerifyVerb, MissingFileIsAFault) {
  RunFixture run;
  const Manifest manifest = run.save(save_of(1, {f32_tensor("w", {1})}));
  std::filesystem::remove(run.file_path(manifest, manifest.files[0].name));
  const Answer answer = call({"verify", run.text()});
  EXPECT_EQ(answer.code, 1) << answer.err;
  EXPECT_TRUE(answer.says(manifest.files[0].name)) << answer.out;
}

TEST(VerifyVerb, FastReadsNoDataAndSaysSo) {
  RunFixture run;
  run.save(save_of(1, {random_tensor("w", DType::kU8, {200'000}, 1)}));
  const Manifest bad = run.save(save_of(2, {random_tensor("w", DType::kU8, {200'000}, 2)}));
  const std::filesystem::path file = run.file_path(bad, bad.files[0].name);
  flip_bit(file, bad.files[0].bytes * 8 - 1);
  const Answer text = call({"verify", "--fast", run.text()});
  EXPECT_EQ(text.code, 0) << text.out;
  EXPECT_TRUE(
      text.says("the data of 2 of 2 files was not read: no checksum is kept there, size only"))
      << text.out;
  EXPECT_TRUE(text.says("2 checkpoints looked at, 0 with a fault")) << text.out;
  const json one = call_json({"verify", "--fast", at(run, 2)}).json();
  EXPECT_EQ(one["attempts"].size(), 1U);
  EXPECT_EQ(one["attempts"][0]["files"], 1);
  EXPECT_EQ(one["attempts"][0]["without_checksum"], json({bad.files[0].name}));
  EXPECT_FALSE(call_json({"verify", run.text()}).json()["attempts"][0].contains("files"));
  std::filesystem::resize_file(file, bad.files[0].bytes - 1);
  const Answer cut = call_json({"verify", "--fast", run.text()});
  EXPECT_EQ(cut.code, 1) << cut.out;
  EXPECT_EQ(cut.json()["attempts"][1]["faults"].size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(run.path() / "scrub.json")) << "nothing has been read";
}

TEST(VerifyVerb, FastAndDeepContradict) {
  RunFixture run;
  run.save(save_of(1, {f32_tensor("w", {1})}));
  const Answer answer = call({"verify", "--fast", "--deep", run.text()});
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.err.find("--deep reads everything and --fast no data"), std::string::npos);
}

class Gc : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint64_t step = 1; step <= 6; ++step) {
      FixtureSave save = save_of(step, {f32_tensor("w", {static_cast<float>(step)})});
      save.annotations.metrics = {{"val:loss", std::abs(static_cast<double>(step) - 2)}};
      run_.save(save);
    }
  }
  std::vector<std::uint64_t> steps() {
    std::vector<std::uint64_t> steps;
    const json document = call_json({"ls", run_.text()}).json();
    for (const json& item : document["checkpoints"]) steps.push_back(item["step"]);
    return steps;
  }
  RunFixture run_;
};

TEST_F(Gc, DryRunOnlyTells) {
  const Answer answer = call_json({"gc", run_.text(), "--keep-last", "2", "--dry-run"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["removed"].size(), 4U);
  EXPECT_GT(answer.json()["bytes_freed"], 0);
  EXPECT_EQ(steps().size(), 6U);
}

TEST_F(Gc, KeepsWhatTheRulesName) {
  const Answer answer = call({"gc", run_.text(), "--keep-last", "1", "--keep-every", "4",
                              "--keep-best", "val:loss:min:1"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(answer.says("removed 3 checkpoints")) << answer.out;
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{6, 4, 2}));
  EXPECT_EQ(call({"verify", run_.text()}).code, 0);
}

TEST_F(Gc, TakesAnEarlierLineToo) {
  run_.claim({}, {.last = 1});
  run_.save(save_of(1, {f32_tensor("w", {1})}));
  EXPECT_EQ(must(collect_garbage(run_.vfs(), {.last = 1})).removed.size(), 0U);
  EXPECT_EQ(call_json({"gc", run_.text()}).json()["removed"].size(), 0U) << "nobody said so";
  const Answer answer = call({"gc", run_.text(), "--keep-last", "1"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(steps(), std::vector<std::uint64_t>{1});
}

TEST_F(Gc, WithoutRulesThoseOfTheLastClaimCount) {
  const Answer none = call({"gc", run_.text()});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_TRUE(none.says("the run records no rule, so all stay; --keep-last gives one\n"));
  EXPECT_EQ(steps().size(), 6U);

  const Manifest newest = run_.save(save_of(7, {f32_tensor("w", {7})}));
  run_.claim(newest.point,
             {.last = 2,
              .every = 3,
              .best = Keep::Best{.metric = "val:loss", .better = Keep::Better::kMin}});
  const json dry = call_json({"gc", run_.text(), "--dry-run"}).json();
  EXPECT_EQ(dry["keep_recorded"], true);
  EXPECT_EQ(dry["keep"]["last"], 2);
  EXPECT_EQ(dry["keep"]["best"]["better"], "min");
  EXPECT_EQ(dry["removed"].size(), 3U);
  EXPECT_EQ(steps().size(), 7U);
  const Answer done = call({"gc", run_.text()});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(
      done.says("by the rule that the run records: keep the newest 2, every multiple of 3, "
                "the best 1 by val:loss:min\n"))
      << done.out;
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{7, 6, 3, 2}));
  EXPECT_EQ(call_json({"gc", run_.text(), "--keep-last", "1"}).json()["keep_recorded"], false);
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{7})) << "given rules replace the recorded ones";
}

TEST_F(Gc, WhereTheRuleCantBeReadOneIsAskedFor) {
  flip_bit(run_.path() / "generation-00000001.json", 8 * 40);
  const Answer answer = call({"gc", run_.text()});
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.err.find("give --keep-last"), std::string::npos) << answer.err;
  EXPECT_EQ(steps().size(), 6U);
}

TEST_F(Gc, RulesThatMakeNoSenseAreUsageErrors) {
  EXPECT_EQ(call({"gc", run_.text(), "--keep-every", "2"}).code, 2);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "0"}).code, 2);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "-3"}).code, 2);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "many"}).code, 2);
  for (const std::string rule :
       {"loss", "loss:least", ":min", "loss:min:0", "min", "loss:min:x", "val:los:min"}) {
    EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1", "--keep-best", rule}).code, 2) << rule;
  }
  EXPECT_EQ(steps().size(), 6U);
}

}  // namespace
}  // namespace deepfreeze
