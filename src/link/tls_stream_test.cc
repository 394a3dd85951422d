#include "link/tls_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <random>

#include "link/link_fixture.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

using Waits = TlsStream::Waits;

// Two sides of one connection, in one thread.
class TlsPair : public testing::Test {
 protected:
  TlsPair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    for (std::size_t i = 0; i < 2; ++i) sockets_[i] = UniqueFd(ends[i]);
  }

  void make_streams(std::uint64_t key_bytes_max = TlsContext::kKeyBytesMax) {
    for (std::size_t i = 0; i < 2; ++i) {
      identities_.push_back(TlsIdentity::make().value());
      contexts_.push_back(TlsContext::make(identities_[i], key_bytes_max).value());
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const auto role = i == 0 ? TlsStream::Role::kDials : TlsStream::Role::kAccepts;
      streams_[i] =
          TlsStream::make(contexts_[i], sockets_[i].get(), role, [this, i](std::string_view key) {
            seen_[i] = key;
            return admits_[i];
          }).value();
    }
  }
  // The first error of each side, if it has one.
  std::array<std::optional<Error>, 2> shake_hands() {
    std::array<std::optional<Error>, 2> errors;
    std::array<bool, 2> is_done{};
    for (int turn = 0; turn < 1000 && !(is_done[0] && is_done[1]); ++turn) {
      const auto side = static_cast<std::size_t>(turn % 2);
      if (is_done[side]) continue;
      const auto waits = streams_[side]->handshake();
      if (!waits) errors[side] = waits.error();
      is_done[side] = !waits || *waits == Waits::kNot;
    }
    EXPECT_TRUE(is_done[0] && is_done[1]);
    return errors;
  }
  [[nodiscard]] bool is_readable(std::size_t side) const {
    pollfd file = {.fd = sockets_[side].get(), .events = POLLIN, .revents = 0};
    return ::poll(&file, 1, 0) == 1;
  }

  const NoBrokenPipe no_broken_pipe_;
  std::array<UniqueFd, 2> sockets_;
  std::vector<TlsIdentity> identities_;
  std::vector<TlsContext> contexts_;
  std::array<bool, 2> admits_{true, true};
  std::array<std::string, 2> seen_;
  std::array<std::unique_ptr<TlsStream>, 2> streams_;
};

TEST_F(TlsPair, EachSideSeesTheOthersKey) {
  make_streams();
  const auto errors = shake_hands();
  EXPECT_FALSE(errors[0] || errors[1]);
  EXPECT_EQ(seen_[0], identities_[1].public_key());
  EXPECT_EQ(seen_[1], identities_[0].public_key());
}

TEST_F(TlsPair, TheDialerRefuses) {
  make_streams();
  admits_[0] = false;
  const auto errors = shake_hands();
  ASSERT_TRUE(errors[0] && errors[1]);
  EXPECT_EQ(errors[0]->code(), ErrorCode::kMismatch);
  EXPECT_EQ(errors[1]->code(), ErrorCode::kMismatch);
  EXPECT_EQ(errors[1]->message(), "it does not accept this process's key");
  EXPECT_TRUE(seen_[1].empty()) << "it has not shown its own key";
}

TEST_F(TlsPair, TheListenerRefusesAndTheDialerReadsIt) {
  make_streams();
  admits_[1] = false;
  const auto errors = shake_hands();
  EXPECT_FALSE(errors[0]) << "the last step of the dialer comes before the listener's check";
  ASSERT_TRUE(errors[1]);
  EXPECT_EQ(errors[1]->code(), ErrorCode::kMismatch);
  std::array<char, TlsStream::kRecordBytes> record;
  const auto read = streams_[0]->read(record);
  ASSERT_EQ(code_of(read), ErrorCode::kMismatch);
  EXPECT_EQ(read.error().message(), "it does not accept this process's key");
}

// Sends `bytes` from one side to the other, and returns how often the reader had to wait though
// there was something to read: messages of the protocol, such as a change of the key.
std::size_t transfer(TlsStream& from, TlsStream& to, const std::function<bool()>& is_readable,
                     std::string_view bytes) {
  std::size_t waits = 0;
  std::string read;
  std::string_view left = bytes;
  std::array<char, TlsStream::kRecordBytes> record;
  while (read.size() < bytes.size()) {
    if (!left.empty()) left.remove_prefix(from.write(left).value().bytes);
    const bool was_readable = is_readable();
    const auto step = to.read(record).value();
    if (step.waits == Waits::kNot) read.append(record.data(), step.bytes);
    if (was_readable && step.waits != Waits::kNot) ++waits;
  }
  EXPECT_TRUE(read == bytes);
  return waits;
}

TEST_F(TlsPair, ChangesItsKeyAfterABound) {
  constexpr std::uint64_t kBound = 64 << 10;
  make_streams(kBound);
  const auto errors = shake_hands();
  ASSERT_FALSE(errors[0] || errors[1]);
  std::mt19937_64 random(7);
  std::string bytes(1 << 20, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (const std::size_t from : {0U, 1U}) {
    const std::size_t to = 1 - from;
    const std::size_t changes =
        transfer(*streams_[from], *streams_[to], [&] { return is_readable(to); }, bytes);
    EXPECT_GE(changes, bytes.size() / kBound - 1);
  }
}

TEST_F(TlsPair, GoesOnAfterAnyPartOfAWrite) {
  make_streams();
  const auto errors = shake_hands();
  ASSERT_FALSE(errors[0] || errors[1]);
  // Far more than the socket holds: the writer must wait in the middle of records.
  std::string bytes(4 << 20, 'x');
  std::string_view left = bytes;
  bool has_waited = false;
  std::string read;
  std::array<char, TlsStream::kRecordBytes> record;
  while (read.size() < bytes.size()) {
    while (!left.empty()) {
      const std::string copy(left);  // at another address each time
      const auto step = streams_[0]->write(copy).value();
      left.remove_prefix(step.bytes);
      if (step.waits == Waits::kNot) continue;
      EXPECT_EQ(step.waits, Waits::kToWrite);
      has_waited = true;
      break;
    }
    for (auto step = streams_[1]->read(record).value(); step.waits == Waits::kNot;
         step = streams_[1]->read(record).value()) {
      read.append(record.data(), step.bytes);
    }
  }
  EXPECT_TRUE(has_waited);
  EXPECT_TRUE(read == bytes);
}

TEST_F(TlsPair, AnErrnoOfThePastIsNotItsOwn) {
  make_streams();
  admits_[1] = false;
  ASSERT_TRUE(shake_hands()[1]);
  // OpenSSL makes no call of the system after an error, and says that one has failed.
  errno = ENOSPC;
  const auto again = streams_[1]->handshake();
  ASSERT_EQ(code_of(again), ErrorCode::kIo);
  EXPECT_EQ(again.error().os_errno(), 0) << again.error().message();
}

TEST_F(TlsPair, SaysItsEnd) {
  make_streams();
  ASSERT_FALSE(shake_hands()[0]);
  ASSERT_TRUE(streams_[0]->write("last"));
  streams_[0]->say_end();
  std::array<char, TlsStream::kRecordBytes> record;
  EXPECT_EQ(streams_[1]->read(record)->bytes, 4U);
  EXPECT_TRUE(streams_[1]->read(record)->is_end);
}

TEST_F(TlsPair, AnEndThatNobodySaysIsAnError) {
  make_streams();
  ASSERT_FALSE(shake_hands()[0]);
  streams_[0].reset();
  sockets_[0] = UniqueFd();
  std::array<char, TlsStream::kRecordBytes> record;
  const auto read = streams_[1]->read(record);
  ASSERT_EQ(code_of(read), ErrorCode::kIo);
  EXPECT_TRUE(read.error().message().contains("closed")) << read.error().message();
}

}  // namespace
}  // namespace deepfreeze
