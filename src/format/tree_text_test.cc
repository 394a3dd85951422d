#include "format/tree_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "format/state_tree.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kBytesMax = 4'000'000;

TreeText written(const std::string& tree, std::uint64_t bytes_max = kBytesMax) {
  auto text = write_tree(tree, bytes_max);
  EXPECT_TRUE(text.has_value());
  return text.value_or(TreeText{});
}

TEST(WriteTree, DividesBetweenCharacters) {
  const TreeText text = written("\"é🧊\"", 4);
  ASSERT_EQ(text.members.size(), 3U);
  EXPECT_TRUE(text.members[0].ends_with(R"(":"\"é")"));
  EXPECT_TRUE(text.members[1].ends_with(R"(":"🧊")"));
  EXPECT_TRUE(text.members[2].ends_with(R"(":"\"")"));
  EXPECT_TRUE(written("").members.empty());
}

TEST(WriteTree, RefusesATreeBeyondItsBound) {
  std::string large(kTreeBytesMax + 1, 'x');
  EXPECT_EQ(rewrite_tree(std::move(large), written("x"), kBytesMax).error().message(),
            "header: the state tree is too large");
}

TEST(RewriteTree, RefusesBytesThatAreNoText) {
  const TreeText last = written(R"(["é"])");
  EXPECT_EQ(rewrite_tree("[\"\xc3\"]", last, kBytesMax).error().message(),
            "header: the state tree is not UTF-8");
  EXPECT_FALSE(rewrite_tree("[\"\xa9\"]", last, kBytesMax).has_value());
}

// Of characters of every length and of all that is escaped, so that texts often begin and end
// alike.
std::string random_text(std::mt19937_64& random) {
  static constexpr std::string_view kCharacters[] = {"\"", "\\", "\n", "\x1f", "a",  "b",  "é",
                                                     "è",  "ש",  "€",  "₭",    "🧊", "🧋", "\x7f"};
  std::string text;
  for (std::uint64_t count = random() % 8; count > 0; --count) {
    text += kCharacters[random() % std::size(kCharacters)];
    // More than is compared, and than is counted, at a time.
    if (random() % 8 == 0) text.append(random() % 3000, random() % 2 == 0 ? 'x' : '"');
  }
  return text;
}

TEST(RewriteTree, GivesWhatWriteTreeGives) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed=" << seed);
  std::mt19937_64 random(seed);
  TreeText last = written("[]");
  for (int round = 0; round < 50'000; ++round) {
    const std::string tree = random_text(random);
    const std::uint64_t bytes_max = random() % 4 == 0 ? 8 : kBytesMax;
    const auto text = rewrite_tree(tree, last, bytes_max);
    ASSERT_TRUE(text.has_value()) << tree;
    const TreeText expected = written(tree, bytes_max);
    ASSERT_EQ(text->tree, tree);
    ASSERT_EQ(text->members, expected.members) << "after " << last.tree;
    last = *text;
  }
}

// Every place counts, however far from both ends.
TEST(RewriteTree, SeesAChangeOfAnyByte) {
  std::string tree(4'000, 'x');
  const TreeText last = written(tree);
  for (char& each : tree) {
    each = '"';
    const auto text = rewrite_tree(tree, last, kBytesMax);
    ASSERT_TRUE(text.has_value());
    ASSERT_EQ(text->members, written(tree).members);
    each = 'x';
  }
}

}  // namespace
}  // namespace deepfreeze
