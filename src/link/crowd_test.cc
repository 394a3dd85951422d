// More connections than an endpoint takes at a time.
#include "link/link_fixture.h"

namespace deepfreeze::link_test {
namespace {

using CrowdOfConnections = LinkTest;

TEST_F(CrowdOfConnections, ThatAreSilentIsBoundedAndKeepsNobodyOut) {
  Node zero(0);
  Node one(1);
  const auto endpoint = zero.start({one.awaited()}, {.greet = std::chrono::hours(1)});
  const std::size_t before = open_files();
  std::vector<UniqueFd> silent;
  constexpr std::size_t kMany = 3 * kNotUpMax;
  const auto begun = Monotonic::now();
  for (std::size_t i = 0; i < kMany; ++i) silent.push_back(connected_to(zero.address));
  ASSERT_TRUE(await([&] { return endpoint->refusals().count > 0; }));
  EXPECT_GE(Monotonic::now() - begun, std::chrono::milliseconds(200)) << "it had its time";
  std::size_t most = 0;
  RawPeer peer(one.identity, connected_to(zero.address), TlsStream::Role::kDials);
  std::jthread talk([&] {
    ASSERT_TRUE(peer.shake_hands()) << peer.error();
    ASSERT_TRUE(peer.say_hello(1));
  });
  ASSERT_TRUE(await([&] {
    most = std::max(most, open_files() - before - kMany - 1);
    return state_of(*endpoint, 1).is_up;
  }));
  talk.join();
  EXPECT_LE(most, kNotUpMax + 1);  // and the one that is up
  EXPECT_GE(most, kNotUpMax / 2);
  const LinkRefusals refusals = endpoint->refusals();
  EXPECT_GE(refusals.count, kMany + 1 - kNotUpMax);
  EXPECT_TRUE(refusals.last->message().contains("in 200 ms, and others wait"));
}

TEST_F(CrowdOfConnections, ThatOnePeerHasMadeIsBounded) {
  Node zero(0);
  Node one(1);
  const auto endpoint = zero.start({one.awaited()});
  const std::size_t before = open_files();
  std::vector<std::unique_ptr<RawPeer>> peers;
  std::size_t most = 0;
  while (peers.size() < kNotUpMax + 16) {  // each takes the place of the one before, which stays
    peers.push_back(greeted(one, zero.address));
    most = std::max(most, open_files() - before - peers.size());
  }
  EXPECT_LE(most, kNotUpMax + 1);  // and the one that is up
}

}  // namespace
}  // namespace deepfreeze::link_test
