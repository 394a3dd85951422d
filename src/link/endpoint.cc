#include "link/endpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "base/named_threads.h"
#include "base/try.h"
#include "link/frame.h"

namespace deepfreeze {
namespace {

using Keys = std::map<std::string, std::uint32_t, std::less<>>;

std::unexpected<Error> invalid(std::string text) {
  return fail(ErrorCode::kInvalidArgument, std::move(text));
}

std::unexpected<Error> no_address(std::uint32_t rank) {
  return invalid(fmt::format("rank {} can't be dialed: no address is known", rank));
}

Result<Keys> keys_of(const Endpoint::Settings& settings) {
  Keys keys;
  std::set<std::uint32_t> ranks = {settings.rank};
  for (const LinkPeer& peer : settings.peers) {
    if (peer.is_dialed && peer.addresses.empty()) return no_address(peer.rank);
    if (!is_public_key(peer.key)) return invalid(fmt::format("rank {} has no key", peer.rank));
    if (!ranks.insert(peer.rank).second) {
      return invalid(fmt::format("there are two processes of rank {}", peer.rank));
    }
    const auto [other, is_new] = keys.emplace(peer.key, peer.rank);
    if (!is_new) {
      return invalid(fmt::format("ranks {} and {} have one key", other->second, peer.rank));
    }
  }
  return keys;
}

Status check_listener(const UniqueFd& listener) {
  if (!listener.valid()) return {};
  int listens = 0;
  socklen_t bytes = sizeof(listens);
  if (::getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 ||
      listens == 0) {
    return invalid("the socket given for listening does not listen");
  }
  const int flags = ::fcntl(listener.get(), F_GETFL);
  if (flags >= 0 && ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) == 0) return {};
  const int cause = errno;
  return fail(ErrorCode::kIo, fmt::format("prepare a socket: {}", std::strerror(cause)), cause);
}

bool is_own(const LinkMessage& message) {
  const auto* error = std::get_if<LinkError>(&message);
  return std::holds_alternative<LinkHello>(message) || std::holds_alternative<LinkPing>(message) ||
         (error != nullptr && error->number == 0);
}

std::vector<std::uint32_t> ranks_of(const std::vector<LinkPeer>& peers) {
  std::vector<std::uint32_t> ranks;
  ranks.reserve(peers.size());
  for (const LinkPeer& peer : peers) ranks.push_back(peer.rank);
  return ranks;
}

std::set<std::uint32_t> ranks_with_address(const std::vector<LinkPeer>& peers) {
  std::set<std::uint32_t> ranks;
  for (const LinkPeer& peer : peers) {
    if (!peer.addresses.empty()) ranks.insert(peer.rank);
  }
  return ranks;
}

}  // namespace

struct Endpoint::Impl {
  Impl(TlsContext tls, WakeUp wakes, Keys known, Settings settings)
      : keys(std::move(known)),
        self{.tls = std::move(tls),
             .hello = {.run = std::move(settings.run), .rank = settings.rank},
             .times = settings.times,
             .rank_of = [this](std::string_view key) { return rank_of(key); }},
        listener(std::move(settings.listener)),
        wake_up(std::move(wakes)),
        with_address(ranks_with_address(settings.peers)),
        mailbox(ranks_of(settings.peers)),
        loop({.self = self, .listener = listener, .wake_up = wake_up, .mailbox = mailbox},
             settings.peers) {}

  [[nodiscard]] std::optional<std::uint32_t> rank_of(std::string_view key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? std::nullopt : std::optional(found->second);
  }

  const pid_t owner = ::getpid();
  const Keys keys;
  const LinkSelf self;
  const UniqueFd listener;
  const WakeUp wake_up;
  const std::set<std::uint32_t> with_address;
  Mailbox mailbox;
  LinkLoop loop;                      // the thread's
  std::vector<std::jthread> threads;  // one, until close()
};

Result<std::unique_ptr<Endpoint>> Endpoint::start(const TlsIdentity& identity, Settings settings) {
  DF_TRY(Keys keys, keys_of(settings));
  DF_TRY_VOID(check_listener(settings.listener));
  DF_TRY(TlsContext tls, TlsContext::make(identity));
  DF_TRY(WakeUp wake_up, WakeUp::make());
  auto impl = std::make_unique<Impl>(std::move(tls), std::move(wake_up), std::move(keys),
                                     std::move(settings));
  impl->threads = start_threads(1, "df-link", [loop = &impl->loop] { loop->run(); });
  if (impl->threads.empty()) return fail(ErrorCode::kNoSpace, "the system refuses a thread");
  return std::make_unique<Endpoint>(std::move(impl));
}

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Endpoint::~Endpoint() {
  // A child has no such thread, and its copy of the lock may be held for ever.
  if (impl_->owner == ::getpid()) {
    close();
  } else {
    std::ignore = impl_.release();
  }
}

Status Endpoint::check_owner() const {
  if (impl_->owner == ::getpid()) return {};
  return fail(ErrorCode::kUnsupported, "the links belong to the process that forked this one");
}

Status Endpoint::send(std::uint32_t rank, const LinkMessage& message) {
  DF_TRY_VOID(check_owner());
  if (is_own(message)) return invalid("the message is one of the endpoint's own");
  // Before a long message is copied: a frame at least must have a place.
  DF_TRY_VOID(impl_->mailbox.may_post(rank, kFrameHeadBytes));
  DF_TRY(const LinkPayload payload, encode(message));
  DF_TRY_VOID(impl_->mailbox.post(rank, to_frames(payload)));
  impl_->wake_up.notify();
  return {};
}

LinkUnsent Endpoint::unsent(std::uint32_t rank) const {
  if (!check_owner()) return {};
  return impl_->mailbox.unsent(rank);
}

Result<LinkEvent> Endpoint::receive(std::chrono::milliseconds timeout) {
  DF_TRY_VOID(check_owner());
  DF_TRY(Mailbox::Taken taken, impl_->mailbox.take(timeout));
  if (taken.makes_room) impl_->wake_up.notify();
  return std::move(taken.event);
}

std::vector<LinkState> Endpoint::states() const {
  if (!check_owner()) return {};
  return impl_->mailbox.states();
}

LinkRefusals Endpoint::refusals() const {
  if (!check_owner()) return {};
  return impl_->mailbox.refusals();
}

Status Endpoint::dial(std::uint32_t rank) {
  DF_TRY_VOID(check_owner());
  if (!impl_->with_address.contains(rank)) return no_address(rank);
  DF_TRY_VOID(impl_->mailbox.want_dialed(rank));
  impl_->wake_up.notify();
  return {};
}

Result<UniqueFd> Endpoint::share_listener() const {
  DF_TRY_VOID(check_owner());
  if (!impl_->listener.valid()) return fail(ErrorCode::kNotFound, "nobody listens");
  UniqueFd copy(::fcntl(impl_->listener.get(), F_DUPFD_CLOEXEC, 0));
  const int cause = errno;
  if (copy.valid()) return copy;
  return fail(ErrorCode::kIo, fmt::format("copy a socket: {}", std::strerror(cause)), cause);
}

void Endpoint::close(std::chrono::milliseconds patience) {
  if (!check_owner()) return;
  impl_->mailbox.close(Monotonic::now() + patience);
  impl_->wake_up.notify();
  impl_->threads.clear();  // joins
}

}  // namespace deepfreeze
