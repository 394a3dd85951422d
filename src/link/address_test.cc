#include "link/address.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

TEST(LinkAddress, IsWrittenAsItIsRead) {
  for (const std::string text : {"127.0.0.1:5000", "0.0.0.0:0", "[::1]:65535", "[::]:1"}) {
    const auto address = LinkAddress::parse(text);
    ASSERT_TRUE(address) << address.error().message();
    EXPECT_EQ(address->text(), text);
  }
  EXPECT_EQ(LinkAddress::parse("[::1]:65535")->port(), 65535);
}

TEST(LinkAddress, OfAnotherFormIsInvalid) {
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", ":5000", "127.0.0.1:x",
                           "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1: 1", "::1:5000",
                           "[127.0.0.1]:5000", "[::1:5000", "localhost:5000", "256.0.0.1:1"}) {
    const auto address = LinkAddress::parse(text);
    EXPECT_EQ(code_of(address), ErrorCode::kInvalidArgument) << text;
  }
  const std::string cut("127.0.0.1\0.example:5000", 23);
  EXPECT_EQ(code_of(LinkAddress::parse(cut)), ErrorCode::kInvalidArgument);
}

TEST(LinkAddress, OfAListenerHasThePortOfTheKernel) {
  const auto listener = listen_on(LinkAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener);
  const auto address = LinkAddress::of_socket(listener->get());
  ASSERT_TRUE(address);
  EXPECT_NE(address->port(), 0);
  const auto again = listen_on(*address);
  ASSERT_EQ(code_of(again), ErrorCode::kIo);
  EXPECT_TRUE(again.error().message().contains(address->text())) << again.error().message();
  EXPECT_EQ(again.error().os_errno(), EADDRINUSE);
}

TEST(LinkAddress, EverywhereIsAlsoTheLoopbackOfIPv4) {
  const auto listener = listen_everywhere();
  ASSERT_TRUE(listener) << listener.error().message();
  const std::uint16_t port = LinkAddress::of_socket(listener->get())->port();
  const auto address = LinkAddress::parse("127.0.0.1:" + std::to_string(port));
  const UniqueFd socket = begin_connect(*address).value();
  pollfd file = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  EXPECT_EQ(::poll(&file, 1, 20'000), 1);
  EXPECT_EQ(LinkAddress::of_peer(socket.get())->text(), address->text());
}

TEST(LinkAddress, OwnOnesLeaveOutTheLoopbackUnlessItIsNamed) {
  const auto all = own_addresses(7);
  ASSERT_TRUE(all);
  EXPECT_TRUE(std::ranges::none_of(*all, [](const LinkAddress& one) {
    return one.text() == "127.0.0.1:7" || one.text() == "[::1]:7";
  }));
  const auto loopback = own_addresses(7, "lo");
  ASSERT_TRUE(loopback);
  EXPECT_TRUE(std::ranges::any_of(
      *loopback, [](const LinkAddress& one) { return one.text() == "127.0.0.1:7"; }));
  EXPECT_TRUE(own_addresses(7, "no-such-interface")->empty());
}

}  // namespace
}  // namespace deepfreeze
