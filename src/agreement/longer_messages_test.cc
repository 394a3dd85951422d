// A rank whose messages are too long is out of step: each such message is an error of every rank.
#include "agreement/longer_messages.h"

#include "agreement/attempt_rounds.h"
#include "agreement/history_rounds.h"
#include "agreement/link_round.h"
#include "agreement/node_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::longer_messages_test {
namespace {

using node_test::Longer;
using node_test::LongerMessages;

class LongerMessagesTest : public node_test::NodesTest {
 protected:
  using Round = std::function<Status(RankGroup&, const Rank&)>;

  void expect_refused(const std::string& call, std::initializer_list<Longer> longer,
                      const Round& round) {
    for (const Longer where : longer) {
      run({"a", "b", "b"}, [&](const Rank& rank) {
        LongerMessages group(rank.group, call, where);
        EXPECT_EQ(code_of(round(group, rank)), ErrorCode::kInternal)
            << call << " " << static_cast<int>(where);
      });
    }
  }
};

Status status_of(const auto& result) {
  return result ? Status{} : Status(std::unexpected(result.error()));
}

TEST_F(LongerMessagesTest, AboutNodesAndLinksAreRefused) {
  expect_refused("find nodes", {Longer::kGiven, Longer::kAnswer},
                 [](RankGroup& group, const Rank& rank) {
                   return status_of(NodeMap::find(&group, rank.vfs, "host"));
                 });
  expect_refused("link nodes", {Longer::kGiven, Longer::kText, Longer::kAnswer},
                 [](RankGroup& group, const Rank& rank) {
                   return status_of(open_links(group, rank.nodes, "run", "lo"));
                 });
}

TEST_F(LongerMessagesTest, AboutTheHistoryAreRefused) {
  expect_refused("share history", {Longer::kGiven, Longer::kText, Longer::kAnswer},
                 [](RankGroup& group, const Rank& rank) {
                   return status_of(share_history(group, rank.nodes, rank.vfs, {}));
                 });
}

TEST_F(LongerMessagesTest, AboutAttemptsAreRefused) {
  expect_refused("list nodes", {Longer::kGiven, Longer::kText, Longer::kAnswer},
                 [](RankGroup& group, const Rank& rank) {
                   return status_of(share_attempts(group, rank.nodes, {}));
                 });
  expect_refused("locate files", {Longer::kText}, [](RankGroup& group, const Rank& rank) {
    return status_of(share_files(group, rank.nodes, rank.vfs, {.step = 1, .attempt_id = 2}));
  });
}

}  // namespace
}  // namespace deepfreeze::longer_messages_test
