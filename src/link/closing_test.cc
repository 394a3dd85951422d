// The end of an endpoint.
#include "link/link_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::link_test {
namespace {

using ClosingEndpoint = LinkTest;

TEST_F(ClosingEndpoint, SaysItsLastWords) {
  Node zero(0);
  Node one(1);
  const auto listening = zero.start({one.awaited()});
  auto dialing = one.start({zero.dialed()});
  ASSERT_TRUE(await_up(*dialing, 0));
  // Unread bytes on the side that closes must not take its last words back.
  ASSERT_TRUE(await_up(*listening, 1));
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(listening->send(1, bytes_message(1, std::string(1 << 20, 'u'))));
  }
  for (std::uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(dialing->send(0, bytes_message(i, std::string(1 << 20, 'w'))));
  }
  dialing->close(kLong);
  for (std::uint64_t i = 1; i <= 8; ++i) ASSERT_EQ(next_number(*listening), i);
}

TEST_F(ClosingEndpoint, DoesNotWaitForOneThatCloses) {
  Node zero(0);
  Node one(1);
  const auto left = zero.start({one.awaited()});
  const auto right = one.start({zero.dialed()});
  ASSERT_TRUE(await_up(*left, 1));
  ASSERT_TRUE(await_up(*right, 0));
  // Each side takes one of them and reads no more: the others are far more than the sockets hold.
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(left->send(1, bytes_message(i, std::string(kInboxBytesMax, 'l'))));
    ASSERT_TRUE(right->send(0, bytes_message(i, std::string(kInboxBytesMax, 'r'))));
  }
  const auto begun = Monotonic::now();
  std::jthread other([&] { left->close(kLong); });
  right->close(kLong);
  other.join();
  EXPECT_LT(Monotonic::now() - begun, kLong);
}

// They wait in the kernel's queue, as the heir has a copy of the listening socket.
TEST_F(ClosingEndpoint, LeavesNewConnectionsToAnHeir) {
  Node zero(0);
  Node one(1);
  const auto endpoint = zero.start({one.awaited()});
  const UniqueFd heirs = endpoint->share_listener().value();
  auto peer = greeted(one, zero.address);
  ASSERT_TRUE(await_up(*endpoint, 1));
  std::jthread closing([&] { endpoint->close(kLong); });
  while (peer->hear()) continue;  // until it says its end, and waits for that of the peer
  const UniqueFd next = connected_to(zero.address);
  peer.reset();
  closing.join();
  EXPECT_TRUE(accepted_from(heirs).valid());
}

TEST_F(ClosingEndpoint, EndsReceiversAndAllCalls) {
  Node zero(0);
  const auto endpoint = zero.start({});
  std::jthread receiver(
      [&] { EXPECT_EQ(code_of(endpoint->receive(std::chrono::hours(1))), ErrorCode::kCancelled); });
  endpoint->close();
  receiver.join();
  endpoint->close();
  EXPECT_EQ(code_of(endpoint->receive(kLong)), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(endpoint->send(0, LinkAsk{})), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deepfreeze::link_test
