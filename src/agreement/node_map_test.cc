#include "agreement/node_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "manifest/node_marker.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze::node_map_test {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kSoon{50};

class NodeMapTest : public testing::Test {
 protected:
  // The directory of each rank, as `place` names it.
  using Places = std::vector<std::string>;

  std::map<std::uint32_t, Result<NodeMap>> find(const Places& places) {
    std::map<std::uint32_t, Result<NodeMap>> found;
    std::mutex mutex;
    ThreadRanks(static_cast<std::uint32_t>(places.size()))
        .run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
          const auto vfs = open_posix_vfs(path_of(places[rank])).value();
          auto map = NodeMap::find(group.get(), *vfs, "host-" + places[rank], kSoon);
          const std::lock_guard lock(mutex);
          found.emplace(rank, std::move(map));
        });
    return found;
  }

  [[nodiscard]] fs::path path_of(const std::string& place) const {
    fs::create_directory(root_.path() / place);
    return root_.path() / place;
  }

  [[nodiscard]] std::size_t files_in(const std::string& place) const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_of(place)), {}));
  }

 private:
  ScopedDir root_;
};

TEST_F(NodeMapTest, RanksOfOneDirectoryAreANode) {
  for (int time = 0; time < 2; ++time) {
    const auto found = find({"a", "b", "a", "b", "c"});
    const std::vector<std::vector<std::uint32_t>> ranks = {{0, 2}, {1, 3}, {4}};
    for (const auto& [rank, map] : found) {
      ASSERT_TRUE(map) << map.error().message();
      ASSERT_EQ(map->nodes().size(), 3U);
      EXPECT_TRUE(std::ranges::equal(map->nodes(), found.at(0)->nodes()));
      EXPECT_EQ(map->own().ranks, ranks[rank == 4 ? 2 : rank % 2]);
      EXPECT_EQ(map->own().host, rank == 4 ? "host-c" : rank % 2 == 0 ? "host-a" : "host-b");
      EXPECT_EQ(map->leads(), rank != 2 && rank != 3);
      EXPECT_EQ(map->decides(), rank == 0 || rank == 2);
      EXPECT_FALSE(map->is_one());
    }
    EXPECT_EQ(found.at(0)->own().path, path_of("a").string());
    for (const char* place : {"a", "b", "c"}) EXPECT_EQ(files_in(place), 1U) << "node.json alone";
  }
}

TEST_F(NodeMapTest, AllRanksMayBeOneNode) {
  for (const auto& [rank, map] : find({"a", "a"})) {
    EXPECT_TRUE(map->is_one());
    EXPECT_EQ(map->leads(), rank == 0);
    EXPECT_TRUE(map->decides());
  }
  const auto vfs = open_posix_vfs(path_of("a")).value();
  const auto alone = NodeMap::find(nullptr, *vfs, "host");
  ASSERT_TRUE(alone);
  EXPECT_TRUE(alone->is_one() && alone->leads() && alone->decides());
  EXPECT_EQ(alone->own().digits, find({"a"}).at(0)->own().digits);
}

TEST_F(NodeMapTest, ACopyOfADirectoryIsNotTakenForIt) {
  ASSERT_TRUE(find({"a"}).at(0));
  fs::copy(path_of("a") / kNodeFile, path_of("b") / kNodeFile);
  for (const auto& [rank, map] : find({"a", "b"})) {
    ASSERT_EQ(code_of(map), ErrorCode::kMismatch);
    const std::string& message = map.error().message();
    EXPECT_TRUE(message.contains("rank 1: " + path_of("b").string())) << message;
    EXPECT_TRUE(message.contains("host-a:" + path_of("a").string())) << message;
  }
  for (const char* place : {"a", "b"}) EXPECT_EQ(files_in(place), 1U);
}

TEST_F(NodeMapTest, ADirectoryWithoutDigitsIsEveryRanksError) {
  std::ofstream(path_of("b") / kNodeFile) << "{}";
  for (const auto& [rank, map] : find({"a", "b", "a"})) {
    ASSERT_EQ(code_of(map), ErrorCode::kCorrupt);
    EXPECT_TRUE(map.error().message().contains("rank 1")) << map.error().message();
  }
  const auto vfs = open_posix_vfs(path_of("b")).value();
  EXPECT_EQ(code_of(NodeMap::find(nullptr, *vfs, "h")), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deepfreeze::node_map_test
