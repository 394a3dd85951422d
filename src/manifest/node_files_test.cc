#include "manifest/node_files.h"

#include <gtest/gtest.h>

#include "manifest/two_nodes.h"
#include "support/code_of.h"

namespace deepfreeze::node_files_test {
namespace {

class OfNode : public testing::Test {
 protected:
  OfNode() {
    nodes_.claim();
    nodes_.seal(3);
    nodes_.other.plant(TwoNodes::manifest_of(3), nodes_.committed_text(3));
    manifest_ = decode_manifest(nodes_.committed_text(3)).value();
  }
  bool has_several_nodes() {
    return is_of_several_nodes(read_run(nodes_.other).value(), manifest_);
  }
  std::string sealed(std::uint32_t rank) const {
    return sealed_file_name(nodes_.identity(3, rank).part);
  }

  TwoNodes nodes_;
  Manifest manifest_;
};

TEST_F(OfNode, IsOfRanksThatHaveAFileHere) {
  const auto own = list_node_files(nodes_.other, manifest_);
  ASSERT_TRUE(own);
  ASSERT_EQ(own->manifest.files.size(), 1U);
  EXPECT_EQ(own->manifest.files[0].name, sealed(1));
  EXPECT_EQ(own->here, 1U);
  EXPECT_EQ(own->elsewhere, 1U);
  EXPECT_EQ(files_here(*own, manifest_), "1 of 2 files here");
  SimDisk empty;
  EXPECT_EQ(code_of(list_node_files(empty, manifest_)), ErrorCode::kNotFound);
}

// A rank seals all its files or none, and all on one node.
TEST_F(OfNode, HoldsAllFilesOfARankThatHasOneHere) {
  Manifest manifest;
  std::vector<DirEntry> entries;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    for (std::uint32_t file = 0; file < 2; ++file) {
      manifest.files.push_back({.name = sealed_file_name({rank, 3, file, 2})});
    }
  }
  entries.push_back({.name = sealed_file_name({1, 3, 1, 2})});
  entries.push_back({.name = part_file_name({2, 3, 1, 2})});
  const auto files = files_of_node(manifest, entries);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, sealed_file_name({1, 3, 0, 2}));
  EXPECT_EQ(files[1].name, sealed_file_name({1, 3, 1, 2}));
}

TEST_F(OfNode, IsThereOnlyInANodesDirectoryAndUnderAClaimThatNamesOne) {
  EXPECT_TRUE(has_several_nodes());
  manifest_.point.generation = 7;
  EXPECT_FALSE(has_several_nodes()) << "without a claim";
  manifest_.point.generation = nodes_.claim(std::nullopt);
  EXPECT_FALSE(has_several_nodes()) << "of a job on one node";
  manifest_.point.generation = 1;
  EXPECT_TRUE(has_several_nodes());
  nodes_.other.plant(generation_file_name(1), "damaged");
  EXPECT_FALSE(has_several_nodes());
  manifest_.point.generation = nodes_.claim();
  EXPECT_TRUE(has_several_nodes());
  ASSERT_TRUE(nodes_.other.remove_file(kNodeFile));
  EXPECT_FALSE(has_several_nodes()) << "a farther tier is to have all files";
}

}  // namespace
}  // namespace deepfreeze::node_files_test
