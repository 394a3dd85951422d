#include "format/tree_memo.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "format/state_tree.h"

namespace deepfreeze {
namespace {

std::string nested(std::size_t depth, std::string_view inner) {
  return std::string(depth, '[') + std::string(inner) + std::string(depth, ']');
}

// Random trees, most of them valid, and random changes of them.
class Trees {
 public:
  explicit Trees(std::uint64_t seed) : random_(seed) {}

  std::string node(int depth) {
    const std::uint64_t kind = random_() % (depth == 0 ? 3 : 8);
    if (kind < 3) return scalar();
    if (kind == 3) return R"({"$":"dict","v":[[[1],)" + node(depth - 1) + "]]}";
    if (kind == 4) return R"({"$":"tuple","v":)" + list(depth) + "}";
    return kind == 5 ? list(depth) : object(depth);
  }
  // Replaces, inserts or drops some bytes.
  void change(std::string& tree) {
    static constexpr std::string_view kBytes = "{}[],:\"0123ab$v ";
    const std::size_t at = random_() % (tree.size() + 1);
    const std::size_t gone = std::min<std::size_t>(random_() % 3, tree.size() - at);
    std::string put;
    for (std::uint64_t i = random_() % 3; i > 0; --i) put += kBytes[random_() % kBytes.size()];
    tree.replace(at, gone, put);
  }
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

 private:
  std::string scalar() {
    switch (random_() % 5) {
      case 4:
        return fmt::format(R"({{"$":"complex","re":{{"$":"float","v":"nan"}},"im":{}.5}})",
                           random_() % 3);
      case 0:
        return std::to_string(random_() % 12);
      case 1:
        return "1.5";
      case 2:
        return fmt::format("\"s{}\"", random_() % 3);
      default:
        return fmt::format(R"({{"$":"tensor","k":"t{}"}})", random_() % 4);
    }
  }
  std::string list(int depth) {
    std::string text;
    for (std::uint64_t i = random_() % 4; i > 0; --i) text += node(depth - 1) + (i > 1 ? "," : "");
    return "[" + text + "]";
  }
  std::string object(int depth) {
    std::string text;
    for (std::uint64_t i = random_() % 4; i > 0; --i) {
      text += fmt::format("\"k{}\":{}{}", i, node(depth - 1), i > 1 ? "," : "");
    }
    return "{" + text + "}";
  }

  std::mt19937_64 random_;
};

TEST(TreeMemo, SaysOfAnyTreeWhatACheckWithoutItSays) {
  const std::uint64_t first = std::random_device()();
  int valid = 0;
  int invalid = 0;
  for (std::uint64_t seed = first; seed < first + 2'000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Trees trees(seed);
    TreeMemo memo;
    std::string tree = trees.node(5);
    for (int step = 0; step < 20; ++step) {
      const Status expected = check_tree(tree);
      const Status checked = check_tree(tree, memo);
      ASSERT_EQ(checked.has_value(), expected.has_value()) << tree;
      ++(expected ? valid : invalid);
      if (!expected) {
        EXPECT_EQ(checked.error().message(), expected.error().message()) << tree;
      }
      if (!expected || trees.below(8) == 0) tree = trees.node(5);
      trees.change(tree);
    }
  }
  EXPECT_GT(valid, 1'000);
  EXPECT_GT(invalid, 1'000);
}

// A container that is valid where it was is too deep elsewhere.
TEST(TreeMemo, KnowsHowDeepATreeMayBe) {
  TreeMemo memo;
  const std::string inner = nested(kTreeDepthMax - 1, "");
  ASSERT_TRUE(check_tree("[" + inner + "]", memo));
  EXPECT_FALSE(check_tree("[[" + inner + "]]", memo));
  EXPECT_TRUE(check_tree("[[1]," + inner + "]", memo));
  EXPECT_FALSE(check_tree("[[" + inner + "]]", memo));
}

// A container that is new shifts all others; only those beside it are checked anew.
TEST(TreeMemo, GoesOnBehindAContainerThatHasChanged) {
  TreeMemo memo;
  ASSERT_TRUE(check_tree("[[[1],2],[3]]", memo));
  memo.begin("[[[9,[4]],2],[3]]");
  EXPECT_EQ(memo.skip(0, 0), 0U);
  const auto whole = memo.enter(0, 0);
  EXPECT_EQ(memo.skip(1, 1), 0U);
  const auto first = memo.enter(1, 1);
  EXPECT_EQ(memo.skip(2, 2), 0U);
  const auto inner = memo.enter(2, 2);
  EXPECT_EQ(memo.skip(5, 3), 0U);
  const auto added = memo.enter(5, 3);
  memo.leave(added, 8);
  memo.leave(inner, 9);
  memo.leave(first, 12);
  EXPECT_EQ(memo.skip(13, 1), 3U);
  memo.leave(whole, 17);
}

TEST(TreeMemo, ForgetsNothingOverATreeThatIsBad) {
  TreeMemo memo;
  ASSERT_TRUE(check_tree(R"({"a":[1,2],"b":{"c":[3]}})", memo));
  EXPECT_FALSE(check_tree(R"({"a":[1,2],"b":{"c":[3})", memo));
  EXPECT_FALSE(check_tree(R"({"a":[1,2],"a":{"c":[3]}})", memo));
  EXPECT_TRUE(check_tree(R"({"a":[1,2],"b":{"c":[4]}})", memo));
}

TEST(TreeMemo, TreesOfVeryManyContainersAreCheckedAnew) {
  TreeMemo memo;
  std::string tree = "[";
  for (std::size_t i = 0; i < TreeMemo::kContainersMax + 5; ++i) tree += "[],";
  tree += "[]]";
  EXPECT_TRUE(check_tree(tree, memo));
  EXPECT_TRUE(check_tree(tree, memo));
  tree[tree.size() - 2] = '}';
  EXPECT_FALSE(check_tree(tree, memo));
}

}  // namespace
}  // namespace deepfreeze
