#include "ipc/message_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>

#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{5000};

class MessageSocketTest : public testing::Test {
 protected:
  ScopedDir dir_;
  std::filesystem::path path_ = dir_.path() / "agent.sock";
};

TEST_F(MessageSocketTest, MessagesStayWholeAndInOrder) {
  const auto server = MessageSocket::listen(path_);
  ASSERT_TRUE(server) << server.error().message();
  const auto client = MessageSocket::connect(path_);
  ASSERT_TRUE(client) << client.error().message();
  const auto connection = server->accept();
  ASSERT_TRUE(connection);
  EXPECT_EQ(connection->peer(), ::getpid());
  EXPECT_EQ(client->peer(), ::getpid());
  const std::string large(kMessageBytesMax, 'x');
  ASSERT_TRUE(client->send("first"));
  ASSERT_TRUE(client->send(large));
  EXPECT_EQ(connection->receive(kSoon)->text, "first");
  EXPECT_EQ(connection->receive(kSoon)->text, large);
  EXPECT_FALSE(client->send(large + "x"));
  EXPECT_FALSE(client->send(""));  // would look like the end
}

TEST_F(MessageSocketTest, FilesArriveOpen) {
  const auto server = MessageSocket::listen(path_);
  const auto client = MessageSocket::connect(path_);
  const auto connection = server->accept();
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(memory.get(), "bytes", 5, 0), 5);
  const std::array files = {memory.get(), memory.get()};
  ASSERT_TRUE(client->send("with files", files));
  const auto received = connection->receive(kSoon);
  ASSERT_TRUE(received);
  ASSERT_EQ(received->files.size(), 2U);
  std::array<char, 5> bytes{};
  ASSERT_EQ(::pread(received->files[1].get(), bytes.data(), bytes.size(), 0), 5);
  EXPECT_EQ(std::string_view(bytes.data(), bytes.size()), "bytes");
  EXPECT_NE(::fcntl(received->files[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(MessageSocketTest, WhatWasSentBeforeTheEndIsHeard) {
  const auto server = MessageSocket::listen(path_);
  std::optional<MessageSocket> connection;
  {
    const auto client = MessageSocket::connect(path_);
    connection = server->accept();
    EXPECT_FALSE(connection->has_lost_peer());
    ASSERT_TRUE(client->send("last words"));
  }
  EXPECT_TRUE(connection->has_lost_peer());
  EXPECT_EQ(connection->receive(kSoon)->text, "last words");
  EXPECT_EQ(connection->receive(kSoon).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(connection->send("answer").error().code(), ErrorCode::kNotFound);
}

TEST_F(MessageSocketTest, NobodyWaitsForEver) {
  const auto server = MessageSocket::listen(path_);
  EXPECT_FALSE(server->accept());
  const auto client = MessageSocket::connect(path_);
  EXPECT_EQ(client->receive(milliseconds(1)).error().code(), ErrorCode::kTimeout);
  const std::string large(kMessageBytesMax, 'x');
  Status sent;
  for (int i = 0; i < 1000 && sent; ++i) sent = client->send(large);  // that nobody reads
  EXPECT_EQ(sent.error().code(), ErrorCode::kBusy);
}

TEST_F(MessageSocketTest, ASocketThatNobodyListensAtIsAbsentAndReplaced) {
  EXPECT_EQ(MessageSocket::connect(path_).error().code(), ErrorCode::kNotFound);
  {
    const auto gone = MessageSocket::listen(path_);
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_EQ(MessageSocket::connect(path_).error().code(), ErrorCode::kNotFound);
  const auto server = MessageSocket::listen(path_);
  ASSERT_TRUE(server) << server.error().message();
  EXPECT_TRUE(MessageSocket::connect(path_));
}

// The directory keeps others out; if it does not, the sockets do.
TEST_F(MessageSocketTest, AProcessOfAnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "LEFT OUT: only root can become another user";
  constexpr uid_t kOther = 65'534;
  const auto server = MessageSocket::listen(path_);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Without MessageSocket, which would refuse the server, too.
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const bool connected =
        ::setuid(kOther) == 0 &&
        ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const auto polite = MessageSocket::connect(path_);
    const bool is_refused = !polite && polite.error().code() == ErrorCode::kUnsupported;
    ::_exit(connected && is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(server->accept());
  EXPECT_FALSE(server->accept());
}

TEST_F(MessageSocketTest, ALongNameIsRefusedByTheReason) {
  const auto refused = MessageSocket::connect(dir_.path() / std::string(200, 'x'));
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message().find("at most 107 bytes"), std::string::npos);
}

}  // namespace
}  // namespace deepfreeze
