#include "manifest/find_runs.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/log.h"
#include "support/code_of.h"

namespace deepfreeze::find_runs_test {
namespace {

namespace fs = std::filesystem;

class FindRuns : public testing::Test {
 protected:
  FindRuns() {
    std::string name = testing::TempDir() + "find_runs_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    tree_ = name;
  }
  ~FindRuns() override { fs::remove_all(tree_); }

  void file(const fs::path& path) {
    fs::create_directories((tree_ / path).parent_path());
    std::ofstream(tree_ / path) << "{}";
  }
  // As paths below the tree.
  std::vector<std::string> found(const fs::path& below = "") {
    const auto runs = find_runs(tree_ / below);
    std::vector<std::string> names;
    if (!runs) return {runs.error().message()};
    for (const fs::path& run : *runs) names.push_back(run.lexically_relative(tree_).string());
    return names;
  }
  using Names = std::vector<std::string>;

  fs::path tree_;
};

const std::string kStep = "step-000000000007-0123456789abcdef";

TEST_F(FindRuns, AtAnyDepthAndByPath) {
  for (const char* run : {"b", "a/y", "a/x", "a b/größe", "a/x/below"}) {
    file(fs::path(run) / "deepfreeze.json");
  }
  fs::create_directories(tree_ / "empty/deep");
  EXPECT_EQ(found(), (Names{"a/x", "a/x/below", "a/y", "a b/größe", "b"}));
  EXPECT_EQ(found("a/x"), (Names{"a/x", "a/x/below"}));
  EXPECT_EQ(found("empty"), Names{});
}

TEST_F(FindRuns, ByACheckpointIfTheRecordIsLost) {
  file(fs::path("lost") / kStep / "manifest.json");
  file(fs::path("undecided") / kStep / "rank.part");
  file("lookalike/step-7/manifest.json");
  EXPECT_EQ(found(), Names{"lost"});
  EXPECT_TRUE(is_run_directory(tree_ / "lost"));
  EXPECT_FALSE(is_run_directory(tree_ / "undecided"));
  EXPECT_FALSE(is_run_directory(tree_ / "nothing there"));
}

TEST_F(FindRuns, NotInAttemptsNorHiddenDirectoriesNorThroughLinks) {
  file("run/deepfreeze.json");
  file(fs::path("run") / kStep / "deepfreeze.json");
  file(fs::path("run") / kStep / "inner/deepfreeze.json");
  file(".hidden/deepfreeze.json");
  fs::create_directory_symlink(tree_ / "run", tree_ / "linked");
  fs::create_directory_symlink(tree_, tree_ / "run/loop");
  fs::create_directories(tree_ / "planted");
  fs::create_symlink(tree_ / "run/deepfreeze.json", tree_ / "planted/deepfreeze.json");
  EXPECT_EQ(found(), Names{"run"});
}

TEST_F(FindRuns, TheTreeItselfMayBeReachedByALink) {
  file("run/deepfreeze.json");
  fs::create_directory_symlink(tree_ / "run", tree_ / "linked");
  EXPECT_EQ(found("linked"), Names{"linked"});
}

TEST_F(FindRuns, AMissingTreeOrAFileIsNotFound) {
  file("a");
  EXPECT_EQ(code_of(find_runs(tree_ / "none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(find_runs(tree_ / "a")), ErrorCode::kNotFound);
}

TEST_F(FindRuns, DepthIsBounded) {
  fs::path deep;
  for (int i = 0; i < kRunsDepthMax; ++i) deep /= "d";
  file(deep / "deepfreeze.json");
  file(deep / "d/deepfreeze.json");
  EXPECT_EQ(found(), Names{deep.string()});
}

// Nothing keeps root from a directory, but a path that is too long.
TEST_F(FindRuns, ADirectoryThatCantBeReadIsTold) {
  fs::path deep = "x";
  for (int i = 0; i < 19; ++i) deep /= std::string(207, 'd');
  file("a/deepfreeze.json");
  file(deep / "deepfreeze.json");
  const fs::path longer = tree_ / std::string(255, 'x');
  fs::rename(tree_ / "x", longer);
  std::vector<fs::path> runs;
  std::vector<int> errors;
  const auto find = [&](std::size_t runs_max) {
    return find_each_run(
        tree_, [&](const fs::path& run) { runs.push_back(run); },
        [&](const fs::path& path, const Error& error) {
          EXPECT_TRUE(path.string().starts_with(longer.string()));
          errors.push_back(error.os_errno());
        },
        runs_max);
  };
  EXPECT_TRUE(find(2));
  EXPECT_EQ(runs, std::vector<fs::path>{tree_ / "a"});
  EXPECT_EQ(errors, std::vector<int>{ENAMETOOLONG});
  EXPECT_EQ(code_of(find(1)), ErrorCode::kInvalidArgument);
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  EXPECT_EQ(find_runs(tree_)->size(), 1U);
  set_log_sink({});
  EXPECT_EQ(lines.size(), 1U);
  fs::rename(longer, tree_ / "x");
}

TEST_F(FindRuns, TooManyAreAnError) {
  for (const char* run : {"a", "b", "b/c"}) file(fs::path(run) / "deepfreeze.json");
  EXPECT_EQ(code_of(find_runs(tree_, 2)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(find_runs(tree_, 3)->size(), 3U);
}

}  // namespace
}  // namespace deepfreeze::find_runs_test
