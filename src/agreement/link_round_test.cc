#include "agreement/link_round.h"

#include <atomic>
#include <optional>

#include "agreement/node_fixture.h"
#include "base/polling.h"
#include "support/code_of.h"
#include "support/no_more_threads.h"

namespace deepfreeze::link_round_test {
namespace {

constexpr std::chrono::seconds kLong{20};  // never waited for in a test that passes

class LinkRound : public node_test::NodesTest {};

bool await_up(const Endpoint& endpoint, std::size_t count) {
  Polling polling(kLong);
  do {
    std::size_t up = 0;
    for (const LinkState& state : endpoint.states()) up += state.is_up ? 1 : 0;
    if (up == count) return true;
  } while (polling.again());
  return false;
}

TEST_F(LinkRound, LeadersAreLinkedWithRankZeroAndReachedByAll) {
  // Nobody may close before the others are done.
  run({"a", "b", "b", "c"}, [](const Rank& rank) {
    const auto links = open_links(rank.group, rank.nodes, "run", "lo");
    ASSERT_TRUE(links) << links.error().message();
    Endpoint& endpoint = *links->endpoint;
    const std::uint32_t own = rank.group.rank();
    const std::size_t others[] = {3, 2, 2, 3};  // that it knows: not those of its own node
    EXPECT_EQ(endpoint.states().size(), others[own]);
    if (own == 0) {
      EXPECT_TRUE(await_up(endpoint, 3));
    }
    if (own == 3) {
      EXPECT_TRUE(await_up(endpoint, 1));
    }
    if (own == 1) {
      EXPECT_TRUE(await_up(endpoint, 1));
    }
    if (own == 2) {
      EXPECT_TRUE(await_up(endpoint, 0)) << "it is no leader";
      ASSERT_TRUE(endpoint.dial(0));
      EXPECT_TRUE(await_up(endpoint, 1));
    }
    std::ignore = rank.group.gather("");
    std::ignore = rank.group.scatter(std::vector<std::string>(own == 0 ? 4 : 0));
  });
}

TEST_F(LinkRound, AnInterfaceWithoutAnAddressIsEveryRanksError) {
  run({"a", "b"}, [](const Rank& rank) {
    const std::string interface = rank.group.rank() == 1 ? "nosuch0" : "lo";
    const auto links = open_links(rank.group, rank.nodes, "run", interface);
    ASSERT_FALSE(links);
    const std::string& message = links.error().message();
    EXPECT_TRUE(message.contains("rank 1")) << message;
    EXPECT_TRUE(message.contains("nosuch0")) << message;
  });
}

TEST_F(LinkRound, AnEndpointThatDoesNotStartIsEveryRanksError) {
  run({"a", "b"}, [](const Rank& rank) {
    std::optional<NoMoreThreads> scope;  // of all ranks, whose threads run already
    if (rank.group.rank() == 0) scope.emplace();
    const auto endpoint = open_links(rank.group, rank.nodes, "run", "lo");
    ASSERT_EQ(code_of(endpoint), ErrorCode::kNoSpace);
    EXPECT_TRUE(endpoint.error().message().contains("rank 0")) << endpoint.error().message();
  });
}

}  // namespace
}  // namespace deepfreeze::link_round_test
