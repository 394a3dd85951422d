#include "format/state_tree.h"

#include <gtest/gtest.h>

#include "format/base64.h"
#include "format/tree_walker.h"
#include "json/json_writer.h"

namespace deepfreeze {
namespace {

using Leaves = std::vector<TreeLeaf>;

Leaves leaves_of(std::string_view tree) {
  EXPECT_TRUE(check_tree(tree).has_value()) << tree;
  const auto walked = walk_tree(tree);
  EXPECT_TRUE(walked.has_value()) << walked.error().message();
  return walked.value_or(Leaves{});
}

TEST(StateTree, ListsPlainValuesInTheirOrder) {
  EXPECT_EQ(leaves_of(R"({"b":[1,-2.5e-3,"x"],"a":{"t":true,"n":null},"e":{},"l":[]})"),
            (Leaves{{"b.0", "int", "1"},
                    {"b.1", "float", "-2.5e-3"},
                    {"b.2", "str", "x"},
                    {"a.t", "bool", "true"},
                    {"a.n", "none", "null"},
                    {"e", "dict", "empty"},
                    {"l", "list", "empty"}}));
  EXPECT_EQ(leaves_of("3"), (Leaves{{"", "int", "3"}}));
}

TEST(StateTree, ListsEveryTag) {
  const std::pair<std::string_view, TreeLeaf> cases[] = {
      {R"({"$":"int","v":"123456789012345678901234567890"})",
       {"", "int", "123456789012345678901234567890"}},
      {R"({"$":"float","v":"-inf"})", {"", "float", "-inf"}},
      {R"({"$":"bytes","v":"AP8="})", {"", "bytes", "0x00ff"}},
      {R"({"$":"tuple","v":[]})", {"", "tuple", "empty"}},
      {R"({"$":"tuple","v":[1]})", {"0", "int", "1"}},
      {R"({"$":"set","v":["a"]})", {"0", "str", "a"}},
      {R"({"$":"frozenset","v":["a"]})", {"0", "str", "a"}},
      {R"({"$":"dict","v":[[1,2]]})", {"1", "int", "2"}},
      {R"({"$":"dict","v":[["$",2]]})", {"$", "int", "2"}},
      {R"({"$":"odict","v":[["k",{"$":"float","v":"nan"}]]})", {"k", "float", "nan"}},
      {R"({"$":"counter","v":[]})", {"", "counter", "empty"}},
      {R"({"$":"defaultdict","f":"list","v":[["k",[7]]]})", {"k.0", "int", "7"}},
      {R"({"$":"defaultdict","v":[],"f":"none"})", {"", "defaultdict", "empty"}},
      {R"({"$":"complex","re":1.0,"im":{"$":"float","v":"nan"}})", {"", "complex", "1.0 nan"}},
      {R"({"$":"np","d":"<f4","v":"AACAPw=="})", {"", "np", "<f4 0x0000803f"}},
      {R"({"$":"size","v":[2,3]})", {"", "size", "(2, 3)"}},
      {R"({"$":"dtype","v":"float32"})", {"", "dtype", "float32"}},
      {R"({"$":"device","v":"cpu"})", {"", "device", "cpu"}},
      {R"({"$":"tensor","k":"m.w"})", {"", "tensor", "m.w"}},
      {R"({"$":"tensor","k":"m.w","view":{"shape":[1],"offset":0},"class":"parameter"})",
       {"", "tensor", "m.w"}},
      {R"({"$":"array","k":"m.w","d":"<U3"})", {"", "array", "m.w"}},
      {R"({"$":"blob","k":"m.w"})", {"", "blob", "m.w"}},
      {R"({"$":"object","t":"module","v":{"x":1}})", {"x", "int", "1"}},
      {R"({"$":"ext","t":"my.Type","v":[1]})", {"0", "int", "1"}}};
  for (const auto& [tree, leaf] : cases) EXPECT_EQ(leaves_of(tree), Leaves{leaf}) << tree;
}

TEST(StateTree, ListsObjectsAroundTheirLeaves) {
  std::vector<TreeObject> objects;
  const auto leaves = walk_tree(
      R"({"a.b":{"$":"object","t":"module","v":{"x":{"$":"object","v":1,"t":"stateful"}}},)"
      R"("c":{"$":"dict","v":[[{"$":"object","t":"key","v":1},2]]}})",
      &objects);
  ASSERT_TRUE(leaves.has_value());
  EXPECT_EQ(objects, (std::vector<TreeObject>{{"a.b.x", "stateful"}, {"a.b", "module"}}));
}

TEST(StateTree, KeysThatAreNotTextAreShownAsPythonWould) {
  EXPECT_EQ(
      leaves_of(R"({"$":"dict","v":[[true,0],[null,1],[{"$":"tuple","v":[1,"a"]},2],[1.5,3]]})"),
      (Leaves{{"True", "int", "0"},
              {"None", "int", "1"},
              {"(1, a)", "int", "2"},
              {"1.5", "int", "3"}}));
}

TEST(StateTree, PathsAreEscapedLikeTheKeysOfTensors) {
  EXPECT_EQ(leaves_of(R"({"":{"a.b":1,"a..b":2,"%~":3,".":4}})"), (Leaves{{"%.a.b", "int", "1"},
                                                                          {"%.a.%.b", "int", "2"},
                                                                          {"%.%25%7E", "int", "3"},
                                                                          {"%.%.%", "int", "4"}}));
}

TEST(StateTree, RefusesWhatNoEncoderWrites) {
  for (const std::string_view tree : {"",
                                      "{",
                                      "nope",
                                      "1 2",
                                      R"({"a":1,"a":1})",
                                      R"({"$":"pickle","v":"x"})",
                                      R"({"$":1})",
                                      R"({"$":"tuple"})",
                                      R"({"$":"tuple","v":{}})",
                                      R"({"$":"tuple","w":[]})",
                                      R"({"v":[],"$":"tuple"})",
                                      R"({"$":"dict","v":[[1]]})",
                                      R"({"$":"dict","v":[[1,2,3]]})",
                                      R"({"$":"dict","v":[1,2]})",
                                      R"({"$":"dict","v":[[]]})",
                                      R"({"$":"defaultdict","v":[]})",
                                      R"({"$":"defaultdict","f":"eval","v":[]})",
                                      R"({"$":"int","v":"1.5"})",
                                      R"({"$":"int","v":""})",
                                      R"({"$":"int","v":"-"})",
                                      R"({"$":"int","v":7})",
                                      R"({"$":"float","v":"NaN"})",
                                      R"({"$":"bytes","v":"A"})",
                                      R"({"$":"bytes","v":"AP8"})",
                                      R"({"$":"bytes","v":"A=P8"})",
                                      R"({"$":"bytes","v":"===="})",
                                      R"({"$":"bytes","v":"AP_8"})",
                                      R"({"$":"complex","re":1.0})",
                                      R"({"$":"complex","re":1,"im":1.0})",
                                      R"({"$":"complex","re":"x","im":1.0})",
                                      R"({"$":"np","d":"<f4"})",
                                      R"({"$":"size","v":[1.5]})",
                                      R"({"$":"size","v":["1"]})",
                                      R"({"$":"tensor"})",
                                      R"({"$":"tensor","k":""})",
                                      R"({"$":"tensor","k":1})",
                                      R"({"$":"object","v":1})",
                                      R"({"$":"ext","t":"x"})",
                                      R"({"$":"tensor","k":"a","$":"int"})",
                                      R"({"$":"tensor","k":"a","view":[1,]})",
                                      R"({"$":"tensor","k":"a","view":99999999999999999999})",
                                      R"({"$":"tensor","k":"a","view":[1e999]})",
                                      "9007199254740993",
                                      "-9007199254740993",
                                      "1e999",
                                      "[NaN]",
                                      "\"\xff\"",
                                      R"({"$":"tuple","v":[{"$":"x"}]})"}) {
    ASSERT_FALSE(check_tree(tree).has_value()) << tree;
    EXPECT_EQ(check_tree(tree).error().code(), ErrorCode::kCorrupt);
    EXPECT_FALSE(walk_tree(tree).has_value()) << tree;
  }
  EXPECT_TRUE(check_tree("[9007199254740992,-9007199254740992]").has_value());
  EXPECT_TRUE(check_tree("99999999999999999999").error().message().contains("beyond 2^53"));
}

TEST(StateTree, BoundsDepthAndSize) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(check_tree(nested(kTreeDepthMax)).has_value());
  EXPECT_FALSE(check_tree(nested(kTreeDepthMax + 1)).has_value());
  EXPECT_FALSE(check_tree(std::string(5'000'000, '[')).has_value());
  EXPECT_FALSE(check_tree("\"" + std::string(kTreeBytesMax, 'x') + "\"").has_value());
}

TEST(StateTree, NoObjectHasAKeyTwiceHoweverManyItHas) {
  for (const int count : {3, 64, 65, 1000}) {
    std::string tree = "{\"7\":0";
    for (int i = 8; i < 6 + count; ++i) tree += ",\"" + std::to_string(i) + "\":0";
    EXPECT_TRUE(check_tree(tree + "}").has_value()) << count;
    const Status twice = check_tree(tree + ",\"7\":0}");
    ASSERT_FALSE(twice.has_value()) << count;
    EXPECT_TRUE(twice.error().message().contains("the key \"7\" twice in one object"));
  }
}

// One long key above many leaves: a small text, but a list of many long paths.
TEST(StateTree, BoundsWhatAListTakes) {
  std::string tree = "{\"" + std::string(1 << 20, 'k') + "\":[0";
  for (int i = 0; i < 1000; ++i) tree += ",0";
  tree += "]}";
  EXPECT_TRUE(check_tree(tree).has_value());
  const auto walked = walk_tree(tree);
  ASSERT_FALSE(walked.has_value());
  EXPECT_TRUE(walked.error().message().contains("list would be too large"));
}

// Objects within objects, with one leaf in fifty.
TEST(StateTree, BoundsWhatAListOfObjectsTakes) {
  std::string nested = "0";
  for (int i = 0; i < 50; ++i) nested = R"({"$":"object","t":"o","v":{"a":)" + nested + "}}";
  std::string tree = "{\"" + std::string(1 << 20, 'k') + "\":[" + nested;
  for (int i = 0; i < 20; ++i) tree += "," + nested;
  tree += "]}";
  std::vector<TreeObject> objects;
  const auto walked = walk_tree(tree, &objects);
  ASSERT_FALSE(walked.has_value());
  EXPECT_TRUE(walked.error().message().contains("list would be too large"));
  std::size_t listed = 0;
  for (const TreeObject& object : objects) listed += object.path.size();
  EXPECT_LE(listed, kTreeListBytesMax);
}

TEST(StateTree, LongTextsThatDifferAreShownDifferently) {
  const std::string text(1000, 'x');
  const Leaves one = leaves_of("\"" + text + "a\"");
  const Leaves other = leaves_of("\"" + text + "b\"");
  EXPECT_NE(one[0].text, other[0].text);
  EXPECT_LT(one[0].text.size(), 200U);
  EXPECT_TRUE(one[0].text.contains("(1001 bytes, crc32c "));
  EXPECT_EQ(describe_bytes(std::string(32, '\0')), "0x" + std::string(64, '0'));
  EXPECT_TRUE(describe_bytes(std::string(33, '\0')).starts_with("33 bytes, crc32c "));
}

TEST(Base64, GivesThePublishedValues) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("Zm9v YmFy"), std::nullopt);
  EXPECT_EQ(decode_base64("Zm9"), std::nullopt);
}

}  // namespace
}  // namespace deepfreeze
