#include "link/link_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/log.h"

namespace deepfreeze {
namespace {

using Phase = Connection::Phase;

constexpr std::chrono::milliseconds kScarcePause{100};  // descriptors or memory are scarce
constexpr std::chrono::milliseconds kPollMax = std::chrono::hours(1);

int poll_timeout(Monotonic::time_point next) {
  const auto now = Monotonic::now();
  if (next <= now) return 0;
  if (next - now >= kPollMax) return static_cast<int>(kPollMax.count());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
}

bool is_bounded(const std::unique_ptr<Connection>& connection) {
  return !connection->is_dialed() && connection->phase() != Phase::kUp;
}

// The errors of all addresses, with the codes of the last one tried.
Error joined(const std::vector<std::optional<Error>>& errors, const Error& last) {
  std::string text;
  for (const auto& error : errors) {
    if (!error) continue;
    if (!text.empty()) text += "; ";
    text += error->message();
  }
  return {last.code(), std::move(text), last.os_errno()};
}

}  // namespace

LinkLoop::LinkLoop(Shared shared, const std::vector<LinkPeer>& peers) : shared_(shared) {
  for (const LinkPeer& peer : peers) {
    peers_[peer.rank] = {.addresses = peer.addresses,
                         .is_dialed = peer.is_dialed,
                         .errors = std::vector<std::optional<Error>>(peer.addresses.size())};
  }
}

void LinkLoop::run() {
  while (true) {
    now_ = Monotonic::now();
    exchange_mail();
    if (end_ && (connections_.empty() || now_ >= *end_)) break;
    dial_all();
    wait();
    now_ = Monotonic::now();
    advance_all();
    accept_all();
    remove_ended();
  }
  connections_.clear();  // the others must see the end, even if this endpoint lives on
}

void LinkLoop::exchange_mail() {
  std::vector<Mailbox::Traffic> links;
  for (const auto& [rank, peer] : peers_) {
    if (peer.up != nullptr) {
      links.push_back({.rank = rank, .unsent_bytes = peer.up->unsent_bytes()});
    }
  }
  const Mailbox::Orders orders = shared_.mailbox.exchange(links);
  for (Mailbox::Traffic& link : links) {
    Connection& connection = *peers_.at(link.rank).up;
    for (std::string& frames : link.outgoing) connection.queue(std::move(frames));
    connection.set_may_read(link.may_read, now_);
  }
  for (const std::uint32_t rank : orders.dials) peers_.at(rank).is_dialed = true;
  if (orders.end && !end_) {
    end_ = orders.end;
    begin_to_leave();
  }
}

void LinkLoop::begin_to_leave() {
  for (auto& [rank, peer] : peers_) {
    peer.dialing = nullptr;
    if (peer.up != nullptr) std::exchange(peer.up, nullptr)->leave(std::nullopt, now_, *end_);
  }
  std::erase_if(connections_, [](const auto& one) { return one->phase() != Phase::kLeaving; });
}

bool LinkLoop::is_due(const Peer& peer) const {
  const bool has_none = peer.up == nullptr && peer.dialing == nullptr;
  return !end_ && peer.is_dialed && !peer.addresses.empty() && has_none;
}

void LinkLoop::dial_all() {
  for (auto& [rank, peer] : peers_) {
    if (!is_due(peer) || now_ < peer.next_try) continue;
    const LinkAddress& address = peer.addresses[peer.address];
    connections_.push_back(Connection::dial(shared_.self, address, rank, now_));
    peer.dialing = connections_.back().get();
  }
}

Monotonic::time_point LinkLoop::next_time() const {
  Monotonic::time_point next = end_ ? *end_ : Monotonic::time_point::max();
  for (const auto& connection : connections_) next = std::min(next, connection->next_tick());
  for (const auto& [rank, peer] : peers_) {
    if (is_due(peer)) next = std::min(next, peer.next_try);
  }
  if (!end_ && is_full()) {
    const auto room = room_at();
    if (room > now_) next = std::min(next, room);  // else the listener is polled already
  }
  return accept_again_ > now_ ? std::min(next, accept_again_) : next;
}

void LinkLoop::wait() {
  std::vector<pollfd> files;
  files.reserve(connections_.size() + 2);
  files.push_back({.fd = shared_.wake_up.fd(), .events = POLLIN, .revents = 0});
  files.push_back(
      {.fd = may_accept() ? shared_.listener.get() : -1, .events = POLLIN, .revents = 0});
  for (const auto& connection : connections_) {
    files.push_back({.fd = connection->fd(), .events = connection->events(), .revents = 0});
  }
  const int told = ::poll(files.data(), files.size(), poll_timeout(next_time()));
  // A lower limit of descriptors makes it fail at once, again and again.
  if (told < 0 && errno != EINTR) std::this_thread::sleep_for(kScarcePause);
  const bool is_told = told > 0;
  if (is_told && files[0].revents != 0) shared_.wake_up.clear();
  is_acceptable_ = is_told && files[1].revents != 0;
  ready_.clear();
  for (std::size_t i = 2; i < files.size(); ++i)
    ready_.push_back(is_told ? files[i].revents : short{0});
}

bool LinkLoop::may_accept() const {
  if (end_ || now_ < accept_again_) return false;
  return !is_full() || room_at() <= now_;
}

bool LinkLoop::is_full() const {
  return static_cast<std::size_t>(std::ranges::count_if(connections_, is_bounded)) >= kNotUpMax;
}

// When the oldest connection without a handshake gives way to another one.
Monotonic::time_point LinkLoop::room_at() const {
  auto first = Monotonic::time_point::max();
  for (const auto& connection : connections_) first = std::min(first, connection->gives_way_at());
  return first;
}

void LinkLoop::make_room() {
  const auto oldest = std::ranges::min_element(
      connections_, {}, [](const auto& connection) { return connection->gives_way_at(); });
  (*oldest)->give_way();
  settle(**oldest);
  connections_.erase(oldest);
}

void LinkLoop::accept_all() {
  while (is_acceptable_ && may_accept()) {
    if (is_full()) {
      make_room();
      is_acceptable_ = false;  // for one that is known to wait
    }
    UniqueFd socket(
        ::accept4(shared_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      connections_.push_back(Connection::accepted(shared_.self, std::move(socket), now_));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // Too few descriptors, or less memory than the kernel needs: poll() would return at once.
    if (errno != EAGAIN) accept_again_ = now_ + kScarcePause;
    return;
  }
}

void LinkLoop::advance_all() {
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    Connection& connection = *connections_[i];
    if (ready_[i] != 0) connection.advance(ready_[i], now_);
    settle(connection);
    connection.tick(now_);
  }
}

// Draws the conclusions from the connection's phase.
void LinkLoop::settle(Connection& connection) {
  if (connection.rank()) {
    Peer& peer = peers_.at(*connection.rank());
    if (connection.phase() == Phase::kGreeted) decide(connection, peer);
    if (peer.up == &connection) {
      for (Connection::Received& one : connection.take_received()) {
        shared_.mailbox.deliver(*connection.rank(), std::move(one.message), one.bytes);
      }
    }
  }
  if (connection.has_just_ended() && !end_) note_end(connection);
}

// Both sides may connect at once, and must then keep the same connection: the one that the higher
// rank has dialed. If one side has dialed both, the older one is dead: that side would not have
// dialed again otherwise.
void LinkLoop::decide(Connection& connection, Peer& peer) {
  const bool is_mine = connection.is_dialed();
  // One that has timed out in this round is there until the round's end.
  if (peer.up == nullptr || peer.up->phase() != Phase::kUp) return bring_up(connection, peer);
  const bool is_mine_higher = shared_.self.hello.rank > *connection.rank();
  const bool holds = peer.up->is_dialed() == is_mine || is_mine == is_mine_higher;
  Connection& loser = holds ? *std::exchange(peer.up, nullptr) : connection;
  loser.leave(Error(ErrorCode::kExists, "another connection takes its place"), now_,
              now_ + shared_.self.times.leave);
  if (holds) bring_up(connection, peer);
}

void LinkLoop::bring_up(Connection& connection, Peer& peer) {
  connection.set_up(now_);
  peer.up = &connection;
  peer.up_since = now_;
  if (peer.dialing == &connection) {
    peer.dialing = nullptr;
    peer.tries = 0;
    peer.errors.assign(peer.addresses.size(), std::nullopt);
  }
  shared_.mailbox.note_up(*connection.rank());
}

void LinkLoop::note_lost(const Connection& connection, Peer& peer) {
  const LinkTimes& times = shared_.self.times;
  peer.up = nullptr;
  // A link that is lost as soon as it is there is not tried without pause.
  const bool has_lasted = now_ - peer.up_since >= times.retry_max;
  peer.pause =
      has_lasted ? times.retry_min : std::clamp(2 * peer.pause, times.retry_min, times.retry_max);
  peer.next_try = now_ + peer.pause;
  shared_.mailbox.note_lost(*connection.rank(), *connection.error());
}

void LinkLoop::remove_ended() {
  for (const auto& connection : connections_) settle(*connection);
  std::erase_if(connections_, [](const auto& one) { return one->phase() == Phase::kOver; });
}

void LinkLoop::note_end(const Connection& connection) {
  if (!connection.rank()) {
    const Error& error = *connection.error();
    const bool is_first = shared_.mailbox.note_refused(error);
    if (is_first) log_warning(fmt::format("a connection was refused: {}", error.message()));
    return;
  }
  Peer& peer = peers_.at(*connection.rank());
  if (peer.up == &connection) return note_lost(connection, peer);
  if (peer.dialing == &connection) return note_failed_dial(connection, peer);
  if (peer.up == nullptr) shared_.mailbox.note_failed(*connection.rank(), *connection.error());
}

void LinkLoop::note_failed_dial(const Connection& connection, Peer& peer) {
  const LinkTimes& times = shared_.self.times;
  peer.dialing = nullptr;
  peer.errors[peer.address] = connection.error();
  peer.address = (peer.address + 1) % peer.addresses.size();
  if (++peer.tries >= peer.addresses.size()) {
    peer.tries = 0;
    peer.pause = std::clamp(2 * peer.pause, times.retry_min, times.retry_max);
    peer.next_try = now_ + peer.pause;
  }
  if (peer.up != nullptr) return;
  shared_.mailbox.note_failed(*connection.rank(), joined(peer.errors, *connection.error()));
}

}  // namespace deepfreeze
