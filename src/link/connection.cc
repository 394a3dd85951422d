// A connection's life:
//   1. TCP is connected, or was accepted.
//   2. TLS proves to each side that the other one has the key of an expected rank.
//   3. Each side says hello. Both now know that the other one accepts them.
//   4. Messages go both ways, and pings if there are none.
//   5. A side that leaves says why, says that no more will come, and reads on until the other one
//      has closed, too: a socket that is closed with unread bytes would take the reason back. It
//      reads from the beginning: if both leave, neither may wait until the other one reads.
#include "link/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "base/try.h"

namespace deepfreeze {
namespace {

using Waits = TlsStream::Waits;

constexpr std::size_t kRecordsMax = 64;                   // read or written in one advance()
constexpr std::size_t kHelloBytesMax = 4 * 1024;          // of a process that has not said hello
constexpr std::chrono::milliseconds kGivesWayAfter{200};  // a handshake, if others wait
constexpr std::uint64_t kOfTheLink = 0;  // the number of an error that ends the link

short event_for(Waits waits) {
  if (waits == Waits::kToWrite) return POLLOUT;
  return waits == Waits::kToRead ? POLLIN : short{0};
}

// The first number of a hello; its other members may differ in another version.
std::uint32_t version_of(const LinkPayload& payload) {
  std::uint32_t version = 0;
  std::memcpy(&version, payload.bytes.data(), std::min(payload.bytes.size(), sizeof(version)));
  return version;
}

std::string frames_of(const LinkMessage& message) {
  const auto payload = encode(message);
  return payload ? to_frames(*payload) : std::string();
}

}  // namespace

Connection::Connection(const LinkSelf& self, UniqueFd socket, std::string place,
                       Monotonic::time_point now)
    : self_(self),
      socket_(std::move(socket)),
      place_(std::move(place)),
      begun_(now),
      deadline_(now + self.times.greet),
      reader_({.message_bytes = kHelloBytesMax}),
      heard_(now),
      sent_(now) {}

Connection::~Connection() {
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
}

std::unique_ptr<Connection> Connection::dial(const LinkSelf& self, const LinkAddress& address,
                                             std::uint32_t rank, Monotonic::time_point now) {
  auto socket = begin_connect(address);
  const Status begun = socket ? Status() : std::unexpected(socket.error());
  auto made = std::make_unique<Connection>(self, begun ? std::move(*socket) : UniqueFd(),
                                           address.text(), now);
  made->is_dialed_ = true;
  made->rank_ = rank;
  made->phase_ = Phase::kConnecting;
  made->deadline_ = now + self.times.connect;
  if (!begun) made->end(begun.error());
  return made;
}

std::unique_ptr<Connection> Connection::accepted(const LinkSelf& self, UniqueFd socket,
                                                 Monotonic::time_point now) {
  const auto address = LinkAddress::of_peer(socket.get());
  auto made = std::make_unique<Connection>(self, std::move(socket),
                                           address ? address->text() : "an unknown address", now);
  made->begin_tls(now);
  return made;
}

short Connection::events() const {
  switch (phase_) {
    case Phase::kConnecting:
      return POLLOUT;
    case Phase::kHandshake:
      return event_for(handshake_waits_);
    case Phase::kLeaving:
      return static_cast<short>((has_closed_ ? 0 : POLLIN) |
                                (has_said_end_ ? 0 : event_for(write_waits_)));
    case Phase::kOver:
      return 0;
    default:
      break;
  }
  int events = may_read_ ? event_for(read_waits_) : 0;
  if (!outgoing_.empty()) events |= event_for(write_waits_);
  return static_cast<short>(events);
}

Monotonic::time_point Connection::next_tick() const {
  if (phase_ == Phase::kOver) return Monotonic::time_point::min();
  if (phase_ != Phase::kUp) return deadline_;
  const auto ping = outgoing_.empty() ? sent_ + self_.times.ping : Monotonic::time_point::max();
  const auto silence = may_read_ ? heard_ + self_.times.silence : Monotonic::time_point::max();
  return std::min(ping, silence);
}

Monotonic::time_point Connection::gives_way_at() const {
  const bool may_give = phase_ == Phase::kHandshake && !is_dialed_;
  return may_give ? begun_ + kGivesWayAfter : Monotonic::time_point::max();
}

void Connection::give_way() {
  end(Error(ErrorCode::kTimeout,
            fmt::format("greet: no answer in {} ms, and others wait", kGivesWayAfter.count())));
}

void Connection::advance(short ready, Monotonic::time_point now) {
  const bool is_lost = (ready & (POLLERR | POLLHUP)) != 0;
  switch (phase_) {
    case Phase::kConnecting:
      return finish_connect(now);
    case Phase::kHandshake:
      return shake_hands(now);
    case Phase::kLeaving:
      return go_on_leaving(now);
    case Phase::kOver:
      return;
    default:
      break;
  }
  // The last words of a side that has closed are read first: they may be its reason. Nothing can
  // follow them, so they are taken even from one whose messages must wait.
  if (may_read_ || is_lost) receive(now);
  if (phase_ == Phase::kLeaving || phase_ == Phase::kOver) return;
  if (const Status sent = flush(now); !sent) end(sent.error());
}

void Connection::tick(Monotonic::time_point now) {
  if (phase_ == Phase::kOver || now < next_tick()) return;
  if (phase_ == Phase::kLeaving) {
    phase_ = Phase::kOver;
    return;
  }
  if (phase_ != Phase::kUp) {
    const auto limit = phase_ == Phase::kConnecting ? self_.times.connect : self_.times.greet;
    const std::string_view what = phase_ == Phase::kConnecting ? "connect" : "greet";
    return end(
        Error(ErrorCode::kTimeout, fmt::format("{}: no answer in {} ms", what, limit.count())));
  }
  if (may_read_ && now - heard_ >= self_.times.silence) {
    return end(
        Error(ErrorCode::kTimeout, fmt::format("silent for {} ms", self_.times.silence.count())));
  }
  if (outgoing_.empty()) queue(frames_of(LinkPing()));
  if (const Status sent = flush(now); !sent) end(sent.error());
}

void Connection::set_up(Monotonic::time_point now) {
  phase_ = Phase::kUp;
  heard_ = now;
}

void Connection::refuse(const Error& why, Monotonic::time_point now) {
  leave(why, now, now + self_.times.leave);
}

bool Connection::has_just_ended() {
  const bool has_ended = phase_ == Phase::kLeaving || phase_ == Phase::kOver;
  return has_ended && !std::exchange(is_end_told_, true);
}

void Connection::leave(const std::optional<Error>& why, Monotonic::time_point now,
                       Monotonic::time_point until) {
  if (why) {
    error_ = named(*why);
    if (stream_) queue(frames_of(LinkError{.number = kOfTheLink, .error = *why}));
  }
  phase_ = Phase::kLeaving;
  deadline_ = until;
  received_.clear();
  go_on_leaving(now);
}

void Connection::queue(std::string frames) {
  unsent_bytes_ += frames.size();
  outgoing_.push_back(std::move(frames));
}

void Connection::set_may_read(bool may_read, Monotonic::time_point now) {
  if (may_read && !may_read_) heard_ = now;  // it may have spoken while nobody listened
  may_read_ = may_read;
}

// step 1
void Connection::finish_connect(Monotonic::time_point now) {
  int cause = 0;
  socklen_t bytes = sizeof(cause);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &cause, &bytes) != 0) cause = errno;
  if (cause != 0) {
    return end(Error(ErrorCode::kIo, fmt::format("connect: {}", std::strerror(cause)), cause));
  }
  begin_tls(now);
}

// step 2
void Connection::begin_tls(Monotonic::time_point now) {
  set_no_delay(socket_.get());
  const auto role = is_dialed_ ? TlsStream::Role::kDials : TlsStream::Role::kAccepts;
  auto stream = TlsStream::make(self_.tls, socket_.get(), role,
                                [this](std::string_view key) { return admit(key); });
  if (!stream) return end(stream.error());
  stream_ = std::move(*stream);
  phase_ = Phase::kHandshake;
  deadline_ = now + self_.times.greet;
  shake_hands(now);
}

bool Connection::admit(std::string_view key) {
  const auto rank = self_.rank_of(key);
  if (is_dialed_) return rank == rank_;
  admitted_ = rank;
  return rank.has_value();
}

void Connection::shake_hands(Monotonic::time_point now) {
  const auto waits = stream_->handshake();
  if (!waits) {
    error_ = named(waits.error());
    stream_.reset();  // it has sent its alert, which the other side must be able to read
    return leave(std::nullopt, now, now + self_.times.leave);
  }
  handshake_waits_ = *waits;
  if (*waits != Waits::kNot) return;
  if (!is_dialed_) rank_ = admitted_;  // only now the private key is proved, too
  phase_ = Phase::kGreeting;
  queue(frames_of(self_.hello));
  advance(0, now);
}

Status Connection::flush(Monotonic::time_point now) {
  for (std::size_t i = 0; i < kRecordsMax && !outgoing_.empty(); ++i) {
    const std::string_view left = std::string_view(outgoing_.front()).substr(sent_of_front_);
    DF_TRY(const TlsStream::Step step, stream_->write(left));
    if (step.is_end) return fail(ErrorCode::kIo, "the other side has closed the connection");
    write_waits_ = step.waits == Waits::kNot ? Waits::kToWrite : step.waits;
    if (step.waits != Waits::kNot) return {};
    sent_ = now;
    sent_of_front_ += step.bytes;
    unsent_bytes_ -= step.bytes;
    if (sent_of_front_ < outgoing_.front().size()) continue;
    outgoing_.pop_front();
    sent_of_front_ = 0;
  }
  return {};
}

void Connection::receive(Monotonic::time_point now) {
  std::array<char, TlsStream::kRecordBytes> record;
  for (std::size_t i = 0; i < kRecordsMax; ++i) {
    const auto step = stream_->read(record);
    if (!step) return end(step.error());
    if (step->is_end) return end(Error(ErrorCode::kIo, "it has closed the link"));
    read_waits_ = step->waits == Waits::kNot ? Waits::kToRead : step->waits;
    if (step->waits != Waits::kNot) return;
    heard_ = now;
    const Status taken = take({record.data(), step->bytes});
    if (phase_ == Phase::kOver) return;
    if (!taken) return refuse(taken.error(), now);
    if (phase_ == Phase::kGreeted) return;  // the owner's turn
  }
}

Status Connection::take(std::string_view bytes) {
  while (!bytes.empty() && phase_ != Phase::kOver) {
    DF_TRY(auto payload, reader_.take(bytes));
    if (payload) DF_TRY_VOID(handle(std::move(*payload)));
  }
  return {};
}

Status Connection::handle(LinkPayload payload) {
  if (phase_ == Phase::kGreeting) return greet(payload);
  DF_TRY(LinkMessage message, decode(payload));
  if (std::holds_alternative<LinkPing>(message)) return {};
  if (std::holds_alternative<LinkHello>(message))
    return fail(ErrorCode::kCorrupt, "a second hello");
  if (const auto* error = std::get_if<LinkError>(&message);
      error != nullptr && error->number == kOfTheLink) {
    end(error->error.within("it has ended the link"));
    return {};
  }
  received_.push_back({.message = std::move(message), .bytes = payload.bytes.size()});
  return {};
}

// step 3
Status Connection::greet(const LinkPayload& payload) {
  if (payload.kind == LinkMessage(LinkHello()).index() + 1 && version_of(payload) != kLinkVersion) {
    return fail(ErrorCode::kUnsupported, fmt::format("version {} of the link meets version {}",
                                                     kLinkVersion, version_of(payload)));
  }
  DF_TRY(const LinkMessage message, decode(payload));
  if (const auto* refusal = std::get_if<LinkError>(&message)) {
    end(refusal->error.within("it refuses the link"));
    return {};
  }
  const auto* hello = std::get_if<LinkHello>(&message);
  if (hello == nullptr) return fail(ErrorCode::kCorrupt, "the first message is no hello");
  if (hello->run != self_.hello.run) {
    return fail(ErrorCode::kMismatch,
                fmt::format("run {} meets run {}", self_.hello.run, hello->run));
  }
  if (hello->rank != rank_) {
    return fail(ErrorCode::kMismatch,
                fmt::format("rank {} has the key of rank {}", hello->rank, rank_.value_or(0)));
  }
  phase_ = Phase::kGreeted;
  reader_.set_message_bytes_max(kLinkMessageBytesMax);
  return {};
}

// step 5
void Connection::go_on_leaving(Monotonic::time_point now) {
  if (!has_said_end_) {
    if (stream_ && !flush(now)) stream_.reset();
    if (!stream_ || outgoing_.empty()) {
      if (stream_) stream_->say_end();
      ::shutdown(socket_.get(), SHUT_WR);
      has_said_end_ = true;
    }
  }
  std::array<char, TlsStream::kRecordBytes> ignored;
  for (std::size_t i = 0; i < kRecordsMax; ++i) {
    const ssize_t bytes = ::recv(socket_.get(), ignored.data(), ignored.size(), 0);
    if (bytes > 0 || (bytes < 0 && errno == EINTR)) continue;
    if (bytes == 0) has_closed_ = true;  // it may still read
    if (bytes == 0 ? has_said_end_ : errno != EAGAIN) phase_ = Phase::kOver;
    return;
  }
}

void Connection::end(const Error& error) {
  error_ = named(error);
  phase_ = Phase::kOver;
}

Error Connection::named(const Error& error) const {
  return error.within(rank_ ? fmt::format("rank {} at {}", *rank_, place_) : place_);
}

}  // namespace deepfreeze
