// Bits are flipped on the wire between two nodes while the file of a lost third one is calculated:
// the bytes are right each time, because a link that was tampered with ends, and is made anew.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "nodes/remote_fixture.h"
#include "nodes/routed_files.h"
#include "protect/protect_fixture.h"
#include "support/number_from.h"

namespace deepfreeze::nodes_test {
namespace {

// Stands in front of a node's listener, and passes all bytes on, but for a bit that is flipped.
class FlippingWire {
 public:
  explicit FlippingWire(LinkAddress to)
      : to_(std::move(to)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  [[nodiscard]] LinkAddress address() const {
    return LinkAddress::of_socket(listener_.get()).value();
  }
  // The byte that comes after so many others, in one direction.
  void flip_after(std::size_t bytes, bool is_towards_listener) {
    left_[is_towards_listener ? 0 : 1] = static_cast<std::int64_t>(bytes);
  }
  void leave_alone() { left_[0] = left_[1] = -1; }
  [[nodiscard]] std::size_t flips() const { return flips_; }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!is_ready(listener_.get(), POLLIN)) continue;
      const UniqueFd dialer = link_test::accepted_from(listener_);
      if (dialer.get() < 0) continue;
      const UniqueFd node = link_test::connected_to(to_);
      const int at_once = 1;  // small answers must not wait for acknowledgements
      for (const int end : {dialer.get(), node.get()}) {
        ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
      }
      while (!stop.stop_requested() && pass_both(dialer.get(), node.get())) {
      }
    }
  }
  static bool is_ready(int file, short events) {
    pollfd one = {.fd = file, .events = events, .revents = 0};
    return ::poll(&one, 1, 1) == 1;
  }
  // False: an end was closed.
  bool pass_both(int dialer, int node) {
    std::array<pollfd, 2> ends = {pollfd{.fd = dialer, .events = POLLIN, .revents = 0},
                                  pollfd{.fd = node, .events = POLLIN, .revents = 0}};
    if (::poll(ends.data(), ends.size(), 10) <= 0) return true;
    return (ends[0].revents == 0 || pass(dialer, node, 0)) &&
           (ends[1].revents == 0 || pass(node, dialer, 1));
  }
  bool pass(int from, int to, std::size_t direction) {
    std::array<char, 16'384> bytes{};
    const ssize_t count = ::recv(from, bytes.data(), bytes.size(), 0);
    if (count <= 0) return false;
    tamper(std::span(bytes).first(static_cast<std::size_t>(count)), direction);
    for (ssize_t sent = 0; sent < count;) {
      if (!is_ready(to, POLLOUT)) continue;
      const ssize_t more =
          ::send(to, bytes.data() + sent, static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += more;
    }
    return true;
  }
  void tamper(std::span<char> bytes, std::size_t direction) {
    const std::int64_t left = left_[direction];
    if (left < 0) return;
    const auto count = static_cast<std::int64_t>(bytes.size());
    if (left < count) {
      char& byte = bytes[static_cast<std::size_t>(left)];
      byte = static_cast<char>(byte ^ 1 << (left % 8));
      ++flips_;
    }
    left_[direction] = left < count ? -1 : left - count;
  }

  const LinkAddress to_;
  const UniqueFd listener_ = listen_on(link_test::loopback()).value();
  std::array<std::atomic<std::int64_t>, 2> left_{-1, -1};  // bytes before the next flip
  std::atomic<std::size_t> flips_{0};
  std::jthread thread_;  // last: it uses all above
};

// Node 0 calculates the file of node 2, which is lost, from its own files and from those of node 1,
// which dials it through the wire.
TEST(WireFlips, ACalculatedFileIsRightWhateverBitFlips) {
  const std::uint64_t seed = number_from("DEEPFREEZE_WIRE_FLIP_SEED", std::random_device()());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Cluster cluster(3, 1, 300'000, seed);
  cluster.protect_all(1);
  const std::string lost = cluster.directory() + "/" + cluster.members()[2].files[0].name;
  const std::string wanted = cluster.files().at(lost);

  Node zero{0};
  Node one{1};
  FlippingWire wire(zero.address);
  LinkPeer dialed = zero.dialed();
  dialed.addresses = {wire.address()};
  // A flip in the length of a record makes the other side wait for more: for `silence`.
  const LinkTimes quick{.greet = std::chrono::milliseconds(500),
                        .ping = std::chrono::milliseconds(50),
                        .silence = std::chrono::milliseconds(500),
                        .retry_min = std::chrono::milliseconds(1),
                        .retry_max = std::chrono::milliseconds(5)};
  const Reading reading(zero, {one.awaited()}, kNever, quick);
  const auto endpoint = one.start({dialed}, quick);
  const auto server =
      FileServer::start(*endpoint, std::make_unique<PassingVfs>(cluster.disk(1))).value();
  const auto dispatcher = LinkDispatcher::start(*endpoint, {.reads = server.get()}).value();

  const auto remote = reading.files_of(1);
  FileRoutes routes;
  for (std::size_t node = 0; node < 2; ++node) {
    Vfs* const vfs = node == 0 ? static_cast<Vfs*>(&cluster.disk(0)) : remote.get();
    routes[cluster.parity_path(node)] = {vfs};
    routes[cluster.directory() + "/" + cluster.members()[node].files[0].name] = {vfs};
  }
  const auto pieces = route_files(std::move(routes));
  const std::array parity = {parity_file_name(0, 3), parity_file_name(1, 3)};
  const auto rebuilt = [&] {
    const auto files = open_rebuilt_files(*pieces, cluster.manifest(), parity);
    return deepfreeze::read_whole(*files, lost, 100'000);
  };

  const std::uint64_t flips = number_from("DEEPFREEZE_WIRE_FLIPS", 40);
  while (wire.flips() < flips) {
    const bool is_request = random() % 4 == 0;  // which have fewer bytes
    wire.flip_after(random() % (is_request ? 5'000 : 500'000), !is_request);
    const auto found = rebuilt();
    ASSERT_TRUE(found) << "after " << wire.flips() << " flips: " << found.error().message();
    ASSERT_TRUE(*found == wanted) << "after " << wire.flips() << " flips";
  }
  wire.leave_alone();
  EXPECT_GT(link_test::state_of(*endpoint, 0).count, flips / 2) << "links that ended";
  std::printf("seed %zu: %zu bits flipped on the wire, 0 wrong bytes\n", std::size_t{seed},
              wire.flips());
}

}  // namespace
}  // namespace deepfreeze::nodes_test
