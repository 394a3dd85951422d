// Connections and other processes.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object/http_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::http_test {
namespace {

bool is_connected_to(int file, std::uint16_t port) {
  sockaddr_in address = {};
  socklen_t bytes = sizeof address;
  return ::getpeername(file, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
         ntohs(address.sin_port) == port;
}

TEST(CurlProcesses, AForkedChildLeavesTheConnectionsOfItsParent) {
  TestServer server(always({}));
  auto http = transport();
  ASSERT_TRUE(http->send(get(server.url("/a"))));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_refused =
        code_of(http->send(get(server.url("/child")))) == ErrorCode::kUnsupported;
    http.reset();
    std::_Exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(http->send(get(server.url("/b"))));
  EXPECT_EQ(server.requests().at(1).target, "/b");
  EXPECT_EQ(server.requests().at(1).connection, 0U);
}

TEST(CurlProcesses, AnEndIsSeenAlthoughAForkedChildHasTheSocket) {
  TestServer server(always({}));
  auto http = transport();
  ASSERT_TRUE(http->send(get(server.url("/a"))));
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    std::_Exit(0);
  }
  http.reset();
  EXPECT_TRUE(await([&] { return server.closed_count() == 1; }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(CurlProcesses, OtherProgramsGetNoSockets) {
  TestServer server(always({}));
  const auto http = transport();
  ASSERT_TRUE(http->send(get(server.url("/a"))));
  int count = 0;
  for (int file = 0; file < 1'024; ++file) {
    if (!is_connected_to(file, server.port())) continue;
    EXPECT_NE(::fcntl(file, F_GETFD) & FD_CLOEXEC, 0);
    ++count;
  }
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace deepfreeze::http_test
