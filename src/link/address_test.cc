#include "link/address.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

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
  for (const char* text : {"", ":", "5000", "127.0.0.1", "127.0.0.1:", ":5000", "127.0.0.1:x",
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

TEST(LinkAddress, WithoutASocketTheCauseIsTold) {
  const LinkAddress address = LinkAddress::parse("127.0.0.1:9").value();
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  const int limited = ::setrlimit(RLIMIT_NOFILE, &none);
  const auto listener = listen_on(address);
  const auto dialed = begin_connect(address);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(limited, 0);
  for (const auto* socket : {&listener, &dialed}) {
    ASSERT_EQ(code_of(*socket), ErrorCode::kIo);
    EXPECT_EQ(socket->error().os_errno(), EMFILE) << socket->error().message();
  }
}

TEST(LinkAddress, ThatNobodyCanHaveIsAnErrorAtOnce) {
  EXPECT_EQ(code_of(begin_connect(LinkAddress::parse("255.255.255.255:9").value())),
            ErrorCode::kIo);
}

ifreq interface(std::string_view name) {
  ifreq request = {};
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

// A thread's own network, with an interface that has no address of its own, not even one of a card.
class OwnNetwork {
 public:
  static constexpr const char* kAddress = "10.1.2.3:7";

  // The thing that this machine lacks for it; "" if nothing.
  [[nodiscard]] std::string enter() {
    if (::unshare(CLONE_NEWNET) != 0) {
      EXPECT_TRUE(errno == EPERM || errno == EINVAL) << std::strerror(errno);
      return "the right to make a network";
    }
    control_ = UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    tunnel_ = UniqueFd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
    if (!tunnel_.valid()) {
      EXPECT_TRUE(errno == ENOENT || errno == ENODEV || errno == EPERM) << std::strerror(errno);
      return "/dev/net/tun";
    }
    ifreq tunnel = interface("tun-test");
    tunnel.ifr_flags = IFF_TUN | IFF_NO_PI;
    EXPECT_EQ(::ioctl(tunnel_.get(), TUNSETIFF, &tunnel), 0) << std::strerror(errno);
    return "";
  }
  void give_address() const {
    ifreq request = interface("lo");
    const auto four = LinkAddress::parse(kAddress).value();
    std::memcpy(&request.ifr_addr, four.data(), four.bytes());
    EXPECT_EQ(::ioctl(control_.get(), SIOCSIFADDR, &request), 0) << std::strerror(errno);
  }
  void bring_up() const {
    for (const char* name : {"lo", "tun-test"}) {
      ifreq request = interface(name);
      request.ifr_flags = IFF_UP;
      EXPECT_EQ(::ioctl(control_.get(), SIOCSIFFLAGS, &request), 0) << std::strerror(errno);
    }
  }
  static bool has_address() {
    const auto own = own_addresses(7, "lo");
    EXPECT_TRUE(own);
    return own && std::ranges::any_of(*own, [](const auto& one) { return one.text() == kAddress; });
  }

 private:
  UniqueFd control_;
  UniqueFd tunnel_;
};

TEST(LinkAddress, OwnOnesAreThoseOfInterfacesThatAreUp) {
  std::string lacking;
  std::thread([&lacking] {
    OwnNetwork network;
    lacking = network.enter();
    if (!lacking.empty()) return;
    network.give_address();
    EXPECT_FALSE(OwnNetwork::has_address());
    network.bring_up();
    EXPECT_TRUE(OwnNetwork::has_address());
  }).join();
  if (!lacking.empty()) GTEST_SKIP() << "LEFT OUT: this machine lacks " << lacking;
}

}  // namespace
}  // namespace deepfreeze
