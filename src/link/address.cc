#include "link/address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <tuple>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr int kBacklog = 4096;  // all nodes of a large job may connect at once
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

std::unexpected<Error> system_fail(std::string_view call, int cause) {
  return fail(ErrorCode::kIo, fmt::format("{}: {}", call, std::strerror(cause)), cause);
}

void set_option(int socket, int level, int option, int value) {
  std::ignore = ::setsockopt(socket, level, option, &value, sizeof(value));
}

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in four = {};
    std::memcpy(&four, address, sizeof(four));
    return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  sockaddr_in6 six = {};
  std::memcpy(&six, address, sizeof(six));
  return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

std::string host_of(const sockaddr* address, socklen_t bytes) {
  std::array<char, NI_MAXHOST> host{};
  const int failed =
      ::getnameinfo(address, bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? host.data() : "?";
}

std::string spelt(const std::string& host, std::uint16_t port) {
  return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool is_wanted(const ifaddrs& one, std::string_view interface) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return false;
  const int family = one.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return false;
  return interface.empty() ? !is_loopback(one.ifa_addr) : interface == one.ifa_name;
}

}  // namespace

Result<LinkAddress> LinkAddress::parse(std::string_view text) {
  const auto invalid = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("\"{}\" is no address and port, such as 10.0.0.1:5000 or [fe80::1]:5000",
                    text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return invalid();
  if (text.contains('\0')) return invalid();  // getaddrinfo() would read up to there
  std::string host(text.substr(0, colon));
  const std::string port(text.substr(colon + 1));
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  if (!is_port(port) || host.contains(':') != has_brackets) return invalid();
  const addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return invalid();
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  LinkAddress address;
  std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
  address.bytes_ = found->ai_addrlen;
  return address;
}

Result<LinkAddress> LinkAddress::of_socket(int socket) {
  LinkAddress address;
  auto* into = reinterpret_cast<sockaddr*>(&address.storage_);
  if (::getsockname(socket, into, &address.bytes_) == 0) return address;
  return system_fail("get a socket's address", errno);
}

Result<LinkAddress> LinkAddress::of_peer(int socket) {
  LinkAddress address;
  auto* into = reinterpret_cast<sockaddr*>(&address.storage_);
  if (::getpeername(socket, into, &address.bytes_) == 0) return address;
  return system_fail("get a peer's address", errno);
}

std::string LinkAddress::text() const { return spelt(host_of(data(), bytes_), port()); }

std::uint16_t LinkAddress::port() const {
  // Both families have it at the same place.
  sockaddr_in four = {};
  std::memcpy(&four, &storage_, sizeof(four));
  return ntohs(four.sin_port);
}

Result<UniqueFd> listen_on(const LinkAddress& address) {
  UniqueFd socket(::socket(address.family(), kSocketFlags, 0));
  const auto failed = [&address](std::string_view call, int cause) {
    return system_fail(fmt::format("{} at {}", call, address.text()), cause);
  };
  if (!socket.valid()) return failed("make a socket", errno);
  // A port that the user has chosen may have connections of a process that is gone.
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // "[::]" takes connections of IPv4, too.
  if (address.family() == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.data(), address.bytes()) != 0) return failed("bind", errno);
  if (::listen(socket.get(), kBacklog) != 0) return failed("listen", errno);
  return socket;
}

Result<UniqueFd> listen_everywhere() {
  DF_TRY(const LinkAddress six, LinkAddress::parse("[::]:0"));
  auto socket = listen_on(six);
  if (socket) return socket;  // else this machine has no IPv6
  DF_TRY(const LinkAddress four, LinkAddress::parse("0.0.0.0:0"));
  return listen_on(four);
}

Result<std::vector<LinkAddress>> own_addresses(std::uint16_t port, std::string_view interface) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return system_fail("list the network's interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(found, &::freeifaddrs);
  std::vector<LinkAddress> addresses;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (!is_wanted(*one, interface)) continue;
    const bool is_four = one->ifa_addr->sa_family == AF_INET;
    const socklen_t bytes = is_four ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const std::string host = host_of(one->ifa_addr, bytes);
    if (host.contains('%')) continue;  // its interface has another name on other machines
    auto address = LinkAddress::parse(spelt(host, port));
    if (address) addresses.push_back(*address);
  }
  return addresses;
}

Result<UniqueFd> begin_connect(const LinkAddress& address) {
  UniqueFd socket(::socket(address.family(), kSocketFlags, 0));
  if (!socket.valid()) return system_fail("make a socket", errno);
  const int done = ::connect(socket.get(), address.data(), address.bytes());
  if (done == 0 || errno == EINPROGRESS || errno == EINTR) return socket;
  return system_fail("connect", errno);
}

void set_no_delay(int socket) { set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1); }

}  // namespace deepfreeze
