#include "agreement/history_rounds.h"

#include <fstream>

#include "agreement/node_fixture.h"
#include "manifest/claims.h"
#include "manifest/run_directory.h"
#include "support/code_of.h"

namespace deepfreeze::history_rounds_test {
namespace {

class HistoryRounds : public node_test::NodesTest {
 protected:
  void share(const std::vector<std::string>& places) {
    run(places, [](const Rank& rank) {
      const auto shared = share_history(rank.group, rank.nodes, rank.vfs, {});
      ASSERT_TRUE(shared) << shared.error().message();
      EXPECT_TRUE(shared->winners.empty());
    });
  }

  [[nodiscard]] RunListing listing_of(const std::string& place) const {
    return read_run(*vfs_of(place)).value();
  }
};

TEST_F(HistoryRounds, ANewRunIsOneOnAllNodes) {
  share({"a", "b", "b", "c"});
  const RunListing first = listing_of("a");
  for (const char* place : {"b", "c"}) {
    EXPECT_EQ(listing_of(place).run, first.run);
    EXPECT_FALSE(listing_of(place).run_rebuilt);
  }
}

TEST_F(HistoryRounds, ANodeGetsWhatItLacks) {
  share({"a", "b"});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(claim_generation(*vfs_of("b"), listing_of("b").run.run_id, {}));
  }
  share({"c", "a", "b"});
  const RunListing whole = listing_of("b");
  for (const char* place : {"a", "c"}) {
    const RunListing got = listing_of(place);
    EXPECT_EQ(got.run, whole.run);
    ASSERT_EQ(got.claims.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(got.claims[i].record, whole.claims[i].record);
  }
}

TEST_F(HistoryRounds, TwoRunsAreEveryRanksError) {
  share({"a"});
  share({"b"});
  run({"a", "b", "a"}, [](const Rank& rank) {
    EXPECT_EQ(code_of(share_history(rank.group, rank.nodes, rank.vfs, {})), ErrorCode::kMismatch);
  });
}

TEST_F(HistoryRounds, ADirectoryThatCannotBeReadIsEveryRanksError) {
  share({"a", "b"});
  std::ofstream(path_of("b") / "deepfreeze.json") << "damaged";  // and no other record tells its id
  run({"a", "b", "a"}, [](const Rank& rank) {
    const auto shared = share_history(rank.group, rank.nodes, rank.vfs, {});
    ASSERT_FALSE(shared);
    EXPECT_TRUE(shared.error().message().contains("rank 1")) << shared.error().message();
  });
}

TEST_F(HistoryRounds, ATextIsPlacedOnce) {
  const auto vfs = vfs_of("a");
  ASSERT_TRUE(place_durably(*vfs, "generation-00000001.json", "text"));
  EXPECT_TRUE(place_durably(*vfs, "generation-00000001.json", "text"));
  EXPECT_EQ(code_of(place_durably(*vfs, "generation-00000001.json", "tex")), ErrorCode::kFenced);
  EXPECT_EQ(read_file(*vfs, "generation-00000001.json", 100), "text");
}

}  // namespace
}  // namespace deepfreeze::history_rounds_test
