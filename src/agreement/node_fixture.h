// For tests: a job whose ranks are threads, and whose nodes are directories of one machine.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "agreement/node_map.h"
#include "storage/posix_vfs.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze::node_test {

class NodesTest : public testing::Test {
 protected:
  struct Rank {
    RankGroup& group;
    const NodeMap& nodes;
    Vfs& vfs;
  };

  // Runs `body` on each rank; `places` names each rank's directory.
  void run(const std::vector<std::string>& places, const std::function<void(const Rank&)>& body) {
    for (const std::string& place : places) std::ignore = path_of(place);
    ThreadRanks(static_cast<std::uint32_t>(places.size()))
        .run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
          const auto vfs = open_posix_vfs(path_of(places[rank])).value();
          const auto nodes = NodeMap::find(group.get(), *vfs, "host-" + places[rank]);
          ASSERT_TRUE(nodes) << nodes.error().message();
          body({*group, *nodes, *vfs});
        });
  }

  [[nodiscard]] std::filesystem::path path_of(const std::string& place) const {
    std::filesystem::create_directory(root_.path() / place);
    return root_.path() / place;
  }
  [[nodiscard]] std::unique_ptr<Vfs> vfs_of(const std::string& place) const {
    return open_posix_vfs(path_of(place)).value();
  }

 private:
  ScopedDir root_;
};

}  // namespace deepfreeze::node_test
