// ls of a directory with runs, and its conditions and orders.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "cli/test_run.h"
#include "format/names.h"
#include "restore/run_fixture.h"
#include "tiering/fork.h"

namespace deepfreeze::cmd_ls_tree_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Steps 1 to `count` with such a loss; as a run of the tree, under that name.
class LsTree : public testing::Test {
 protected:
  LsTree() {
    std::string name = testing::TempDir() + "tree_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    tree_ = name;
    add("a/slow", {0.9, 0.8, 0.7}, {{"lr", "1e-4"}});
    add("a/fast", {0.5, 0.1, 0.3, 0.15}, {{"lr", "3e-4"}}, Keep::Best{.metric = "loss"});
    add("b", {0.2}, {{"lr", "3e-4"}}, {},
        ParentPoint{.run = (tree_ / "a/fast").string(), .step = 2});
    add("none", {}, {});
  }
  ~LsTree() override { fs::remove_all(tree_); }

  void add(const std::string& name, const std::vector<double>& losses, const Tags& tags,
           const std::optional<Keep::Best>& best = {}, std::optional<ParentPoint> parent = {}) {
    RunFixture run(std::move(parent));
    if (best) run.claim({}, {.last = 9, .best = best});
    std::uint64_t step = 0;
    for (const double loss : losses) {
      FixtureSave save{.step = ++step, .ranks = {{f32_tensor("w", {1})}}};
      save.annotations.metrics = {{"loss", loss}};
      save.annotations.tags = tags;
      run.save(save);
    }
    fs::create_directories((tree_ / name).parent_path());
    fs::copy(run.path(), tree_ / name, fs::copy_options::recursive);
  }
  json listed(std::vector<std::string> more = {}) {
    std::vector<std::string> words{"ls", tree_.string()};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = call_json(words);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return answer.json()["runs"];
  }
  std::vector<std::string> names(std::vector<std::string> more = {}) {
    std::vector<std::string> found;
    for (const json& run : listed(std::move(more))) found.push_back(run["run"]);
    return found;
  }
  using Names = std::vector<std::string>;

  fs::path tree_;
};

TEST_F(LsTree, ListsEveryRunWithItsNumbers) {
  const json runs = listed();
  ASSERT_EQ(names(), (Names{"a/fast", "a/slow", "b", "none"}));
  EXPECT_EQ(runs[0]["steps"], 4);
  EXPECT_EQ(runs[0]["newest"]["step"], 4);
  EXPECT_EQ(runs[0]["best"]["step"], 2);
  EXPECT_EQ(runs[0]["shown"]["metrics"]["loss"], 0.1);
  EXPECT_EQ(runs[0]["newest"]["tags"]["lr"], "3e-4");
  EXPECT_TRUE(runs[0]["active"]);
  EXPECT_EQ(runs[0]["faults"], 0);
  EXPECT_EQ(runs[1]["best"], nullptr) << "no rule says which is";
  EXPECT_EQ(runs[1]["shown"]["step"], 3);
  EXPECT_EQ(runs[2]["parent"]["run"], (tree_ / "a/fast").string());
  EXPECT_EQ(runs[3]["newest"], nullptr);
  EXPECT_EQ(runs[3]["steps"], 0);
  const json one = call_json({"ls", (tree_ / "b").string()}).json();
  EXPECT_EQ(runs[2]["bytes"], one["checkpoints"][0]["bytes"]);
  EXPECT_EQ(runs[2]["id"], one["run"]["id"]);
  const Answer table = call({"ls", tree_.string()});
  EXPECT_TRUE(table.says("a/fast@2")) << table.out;
  EXPECT_TRUE(table.says("active")) << table.out;
  EXPECT_TRUE(table.says("0.1")) << table.out;
}

TEST_F(LsTree, ARunWithRunsBelowIsListedAsARun) {
  fs::copy(tree_ / "b", tree_ / "a/slow/inner", fs::copy_options::recursive);
  EXPECT_EQ(call_json({"ls", (tree_ / "a/slow").string()}).json()["checkpoints"].size(), 3U);
  EXPECT_EQ(names(), (Names{"a/fast", "a/slow", "a/slow/inner", "b", "none"}));
}

TEST_F(LsTree, AConditionChoosesRunsAndWhatIsShownOfThem) {
  EXPECT_EQ(names({"--where", "loss<0.6 and tag.lr=3e-4"}), (Names{"a/fast", "b"}));
  EXPECT_EQ(names({"--where", "steps>=3"}), (Names{"a/fast", "a/slow"}));
  EXPECT_EQ(names({"--where", "tag.lr<=0.0001"}), Names{"a/slow"});
  EXPECT_EQ(names({"--where", "bytes>1e15"}), Names{});
  EXPECT_EQ(call({"ls", tree_.string(), "--where", "bytes>1e15"}).out, "no run matches\n");
  const json fast = listed({"--where", "loss>=0.15"})[0];
  EXPECT_EQ(fast["matching"], 3);
  EXPECT_EQ(fast["shown"]["step"], 4) << "the newest of those, since the best is not among them";
  EXPECT_EQ(fast["best"]["step"], 2);
  EXPECT_EQ(listed({"--where", "loss<0.2"})[0]["shown"]["step"], 2);
}

TEST_F(LsTree, RunsAreSorted) {
  EXPECT_EQ(names({"--sort", "loss"}), (Names{"a/fast", "b", "a/slow", "none"}));
  EXPECT_EQ(names({"--sort", "loss", "--reverse"}), (Names{"a/slow", "b", "a/fast", "none"}));
  EXPECT_EQ(names({"--sort", "steps"}), (Names{"none", "b", "a/slow", "a/fast"}));
  EXPECT_EQ(names({"--sort", "tag.lr"}), (Names{"a/slow", "a/fast", "b", "none"}));
  EXPECT_EQ(names({"--reverse"}), (Names{"none", "b", "a/slow", "a/fast"}));
}

TEST_F(LsTree, TheCheckpointsOfOneRunAreChosenAndSortedLikewise) {
  const auto steps = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"ls", (tree_ / "a/fast").string()};
    words.insert(words.end(), more.begin(), more.end());
    const json document = call_json(words).json();
    std::vector<int> found;
    for (const json& one : document["checkpoints"]) found.push_back(one["step"]);
    return found;
  };
  EXPECT_EQ(steps({}), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(steps({"--where", "loss<0.2"}), (std::vector<int>{4, 2}));
  EXPECT_EQ(steps({"--where", "steps=4 and step>2 and tag.lr=3e-4"}), (std::vector<int>{4, 3}));
  EXPECT_EQ(steps({"--sort", "loss"}), (std::vector<int>{2, 4, 3, 1}));
  EXPECT_EQ(steps({"--sort", "step", "--where", "loss>0.1"}), (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(steps({"--reverse"}), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_TRUE(call({"ls", (tree_ / "a/fast").string(), "--where", "loss<0.2"}).says("newest"));
  EXPECT_EQ(call({"ls", (tree_ / "b").string(), "--where", "loss<0"}).out, "no checkpoints\n");
}

// A path that is too long, since nothing else keeps root from a directory.
TEST_F(LsTree, ADirectoryThatCantBeReadHasALineWithTheError) {
  fs::path deep = tree_ / "x";
  for (int i = 0; i < 19; ++i) deep /= std::string(207, 'd');
  fs::create_directories(deep);
  const std::string longer(255, 'x');
  fs::rename(tree_ / "x", tree_ / longer);
  const json runs = listed();
  ASSERT_EQ(runs.size(), 5U);
  EXPECT_TRUE(std::string(runs[4]["run"]).starts_with(longer));
  EXPECT_TRUE(runs[4].contains("error")) << runs[4];
  const Answer table = call({"ls", tree_.string()});
  EXPECT_TRUE(table.says("can't be read") && table.says("File name too long")) << table.out;
  fs::rename(tree_ / longer, tree_ / "x");
}

TEST_F(LsTree, AnEmptyConditionOrKeyIsNotOneThatWasNotGiven) {
  const Answer none = call({"ls", tree_.string(), "--where", ""});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("at character 1: a name should be here, not the end"), std::string::npos)
      << none.err;
  EXPECT_EQ(call({"ls", tree_.string(), "--sort", ""}).code, 2);
  EXPECT_EQ(call({"ls", tree_.string(), "--where=step=1", "--where=step=2"}).code, 2);
}

TEST_F(LsTree, ABadConditionIsAUsageErrorWithItsPlace) {
  for (const std::string& place : {tree_.string(), (tree_ / "b").string()}) {
    const Answer answer = call({"ls", place, "--where", "loss<<0.2"});
    EXPECT_EQ(answer.code, 2);
    EXPECT_NE(answer.err.find("--where: condition 'loss<<0.2', at character 5"), std::string::npos)
        << answer.err;
    EXPECT_EQ(call({"ls", place, "--sort", "tag."}).code, 2);
  }
}

TEST_F(LsTree, FaultsAreToldAndSpoilNoOtherRun) {
  std::ofstream(tree_ / "b/deepfreeze.json") << "{}";
  fs::remove(tree_ / "b/generation-00000001.json");
  for (const auto& entry : fs::directory_iterator(tree_ / "b")) {
    if (entry.is_directory()) fs::remove_all(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(tree_ / "a/slow")) {
    if (entry.is_directory()) flip_bit(entry.path() / "manifest.json", 8 * 40);
  }
  const json runs = listed();
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[1]["faults"], 3);
  EXPECT_EQ(runs[2]["error"]["code"], "corrupt");
  EXPECT_EQ(names({"--where", "loss<0.2"}), (Names{"a/fast", "b"})) << "nobody knows about b";
  const Answer table = call({"ls", tree_.string()});
  EXPECT_TRUE(table.says("active, 3 faults")) << table.out;
  EXPECT_TRUE(table.says("can't be read")) << table.out;
}

TEST_F(LsTree, WhatHoldsNoRunIsAnErrorAsBefore) {
  fs::create_directories(tree_ / "empty/deep");
  const Answer answer = call({"ls", (tree_ / "empty").string()});
  EXPECT_EQ(answer.code, 3);
  EXPECT_NE(answer.err.find("not a DeepFreeze run directory"), std::string::npos) << answer.err;
  EXPECT_EQ(call({"ls", (tree_ / "nothing").string()}).code, 3);
  EXPECT_EQ(call({"ls", tree_.string() + "@3"}).code, 2);
}

TEST_F(LsTree, AnOddNameStaysOnItsLine) {
  fs::rename(tree_ / "b", tree_ / "b\x1b[2J\n");
  const Answer table = call({"ls", tree_.string()});
  EXPECT_TRUE(table.says("b\\x1b[2J\\x0a")) << table.out;
  EXPECT_EQ(listed()[2]["run"], "b\x1b[2J\n");
}

// The files are too young for one to be made here: run_index_test makes and breaks them.
TEST_F(LsTree, AnIndexDisturbsNoOtherVerb) {
  const std::string run = (tree_ / "b").string();
  std::ofstream(tree_ / "b" / kIndexFile) << "anything";
  const json with = listed();
  EXPECT_EQ(with, listed({"--no-index"}));
  EXPECT_EQ(call_json({"doctor", run}).json()["findings"], json::array());
  EXPECT_EQ(call({"verify", "--deep", run}).code, 0);
  EXPECT_EQ(call({"gc", run, "--keep-last", "1"}).code, 0);
  EXPECT_EQ(call({"fork", run, (tree_ / "fork").string()}).code, 0);
  EXPECT_FALSE(fs::exists(tree_ / "fork" / kIndexFile));
  EXPECT_EQ(call({"flush", run, (tree_ / "far").string()}).code, 0);
  EXPECT_FALSE(fs::exists(tree_ / "far" / kIndexFile));
  EXPECT_TRUE(fs::exists(tree_ / "b" / kIndexFile));
}

}  // namespace
}  // namespace deepfreeze::cmd_ls_tree_test
