#include "ipc/message_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
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

TEST_F(MessageSocketTest, ALongNameIsRefusedByTheReason) {
  const auto refused = MessageSocket::connect(dir_.path() / std::string(200, 'x'));
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message().find("at most 107 bytes"), std::string::npos);
}

}  // namespace
}  // namespace deepfreeze
