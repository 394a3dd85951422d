// Endpoints in several processes: killed peers, heirs, forked children.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "ipc/message_socket.h"
#include "link/link_fixture.h"
#include "support/code_of.h"
#include "support/scoped_dir.h"

namespace deepfreeze::link_test {
namespace {

// A forked process that runs `body`, and is killed at the end.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) : process_(::fork()) {
    if (process_ != 0) return;
    body();
    std::_Exit(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  // Its exit status.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void signal(int number) const { ::kill(process_, number); }

 private:
  pid_t process_;
};

// Sends every message back to rank 1, until it is killed.
void echo(Node& node, const LinkPeer& peer, LinkTimes times = {}) {
  const auto endpoint = node.start({peer}, times);
  while (const auto event = next_message(*endpoint)) {
    std::ignore = endpoint->send(event->rank, *event->message);
  }
}

bool echoes(Endpoint& endpoint, std::uint64_t number) {
  return endpoint.send(0, bytes_message(number, "")) && next_number(endpoint) == number;
}

class LinkedProcesses : public LinkTest {
 protected:
  Node zero_{0};
  Node one_{1};
  const LinkPeer peer_zero_ = zero_.dialed();
  const LinkPeer peer_one_ = one_.awaited();
};

TEST_F(LinkedProcesses, OneThatIsKilledIsLostAtOnce) {
  Child other([&] { echo(zero_, peer_one_); });
  zero_.listener = UniqueFd();
  const auto endpoint = one_.start({peer_zero_}, {.silence = std::chrono::hours(1)});
  ASSERT_TRUE(await_up(*endpoint, 0));
  ASSERT_TRUE(echoes(*endpoint, 3));
  other.kill();
  EXPECT_TRUE(await([&] { return !state_of(*endpoint, 0).is_up; }));
  EXPECT_EQ(code_of(endpoint->send(0, LinkAsk{})), ErrorCode::kNotFound);
}

TEST_F(LinkedProcesses, OneThatIsKilledWhileItReceivesIsLost) {
  Child other([&] { echo(zero_, peer_one_); });
  zero_.listener = UniqueFd();
  const auto endpoint = one_.start({peer_zero_}, {.silence = std::chrono::hours(1)});
  ASSERT_TRUE(await_up(*endpoint, 0));
  // Written on after its end: no SIGPIPE ends this process.
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(endpoint->send(0, bytes_message(i, std::string(16 << 20, 'k'))));
  }
  other.kill();
  EXPECT_TRUE(await([&] { return !state_of(*endpoint, 0).is_up; }));
}

TEST_F(LinkedProcesses, OneWhoseChildHoldsItsSocketsIsLostBySilence) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  Child other([&] {
    const auto endpoint = zero_.start({peer_one_});
    std::ignore = await_up(*endpoint, 1);
    if (::fork() == 0) {  // like a worker of a data loader; it ends with this test
      ::close(write_end.get());
      char byte = 0;
      std::ignore = ::read(read_end.get(), &byte, 1);
      std::_Exit(0);
    }
    ::kill(::getpid(), SIGKILL);
  });
  zero_.listener = UniqueFd();
  const auto endpoint = one_.start({peer_zero_}, {.silence = std::chrono::milliseconds(500)});
  ASSERT_TRUE(await_up(*endpoint, 0));
  ASSERT_TRUE(await([&] { return !state_of(*endpoint, 0).is_up; }));
  const Error error = *state_of(*endpoint, 0).error;
  EXPECT_TRUE(error.message().contains("silent for 500 ms")) << error.message();
}

TEST_F(LinkedProcesses, OneThatIsStoppedIsLostAndComesBack) {
  const LinkTimes times{.ping = std::chrono::milliseconds(50),
                        .silence = std::chrono::milliseconds(1'000)};
  Child other([&] { echo(zero_, peer_one_, times); });
  zero_.listener = UniqueFd();
  const auto endpoint = one_.start({peer_zero_}, times);
  ASSERT_TRUE(await_up(*endpoint, 0));
  other.signal(SIGSTOP);
  ASSERT_TRUE(await([&] { return !state_of(*endpoint, 0).is_up; }));
  other.signal(SIGCONT);
  ASSERT_TRUE(await_up(*endpoint, 0, 2));
  EXPECT_TRUE(echoes(*endpoint, 8));
}

// The trainer's process is killed; its heir has the private key and the listening socket.
TEST_F(LinkedProcesses, AnHeirGoesOnAtTheSamePort) {
  const ScopedDir folder;
  const auto path = folder.path() / "socket";
  const MessageSocket door = MessageSocket::listen(path).value();
  Child heir([&] {
    auto socket = door.accept();
    while (!socket) socket = door.accept();
    auto handed = socket->receive(kLong).value();
    Node node(0);
    node.identity = TlsIdentity::take_over(handed.text).value();
    node.listener = std::move(handed.files.front());
    std::ignore = socket->receive(kLong);  // "the trainer is gone"
    echo(node, peer_one_);
  });
  const MessageSocket to_heir = MessageSocket::connect(path).value();
  Child trainer([&] {
    const auto endpoint = zero_.start({peer_one_});
    const UniqueFd copy = endpoint->share_listener().value();
    const int fd = copy.get();
    std::ignore = to_heir.send(zero_.identity.private_key().value(), {&fd, 1});
    while (const auto event = next_message(*endpoint)) {
      std::ignore = endpoint->send(event->rank, *event->message);
    }
  });
  zero_.listener = UniqueFd();
  const auto endpoint = one_.start({peer_zero_});
  ASSERT_TRUE(await_up(*endpoint, 0));
  ASSERT_TRUE(echoes(*endpoint, 1));
  trainer.kill();
  ASSERT_TRUE(await([&] { return !state_of(*endpoint, 0).is_up; }));
  // Nobody accepts now, but connections queue: none is refused.
  const Error waiting = *state_of(*endpoint, 0).error;
  EXPECT_FALSE(waiting.message().contains("refused")) << waiting.message();
  ASSERT_TRUE(to_heir.send("gone"));
  ASSERT_TRUE(await_up(*endpoint, 0, 2));
  EXPECT_TRUE(echoes(*endpoint, 2));
}

TEST_F(LinkedProcesses, AForkedChildIsNoSpeakerAndEndsNothing) {
  auto zero = zero_.start({peer_one_});
  const auto one = one_.start({peer_zero_});
  ASSERT_TRUE(await_up(*one, 0));
  ASSERT_TRUE(await_up(*zero, 1));
  Child child([&] {
    bool refused = code_of(zero->send(1, LinkAsk{})) == ErrorCode::kUnsupported;
    refused &= code_of(zero->receive(kLong)) == ErrorCode::kUnsupported;
    refused &= code_of(zero->dial(1)) == ErrorCode::kUnsupported;
    refused &= code_of(zero->share_listener()) == ErrorCode::kUnsupported;
    refused &= zero->states().empty() && zero->refusals().count == 0;
    zero->close();
    zero.reset();
    std::_Exit(refused ? 0 : 1);
  });
  EXPECT_EQ(child.wait(), 0);
  const Status sent = zero->send(1, bytes_message(2, ""));
  ASSERT_TRUE(sent) << sent.error().message();
  EXPECT_EQ(next_number(*one), 2U);
  EXPECT_EQ(state_of(*one, 0).count, 1U);
}

TEST_F(LinkedProcesses, ALostConnectionEndsAlsoForAForkedChild) {
  const auto endpoint = zero_.start({peer_one_}, {.silence = std::chrono::milliseconds(300)});
  const auto silent = greeted(one_, peer_zero_.addresses.front());
  ASSERT_TRUE(await_up(*endpoint, 1));
  const Child child([] {
    ::alarm(60);
    while (true) ::pause();
  });
  ASSERT_TRUE(await([&] { return !state_of(*endpoint, 1).is_up; }));
  while (silent->hear()) continue;  // a test that waits for more fails in RawPeer
}

bool has_thread(std::string_view name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return true;
  }
  return false;
}

std::chrono::microseconds processor_time() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST_F(LinkedProcesses, WithoutDescriptorsConnectionsWaitAndTheThreadRests) {
  constexpr std::chrono::milliseconds kWhile{300};
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd ours(ends[0]);
  const UniqueFd childs(ends[1]);
  char byte = 0;
  Child other([&] {
    std::ignore = ::recv(childs.get(), &byte, 1, 0);
    echo(one_, peer_zero_);  // dials
  });
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto endpoint = zero_.start({peer_one_});
  ASSERT_TRUE(await([] { return has_thread("df-link"); }));  // a sanitizer looks at its beginning
  rlimit scarce = before;
  // The next free number is the first that is forbidden.
  scarce.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(0)).get());
  // Sanitizers need descriptors to judge an expectation: none until there are some again.
  const int limited = ::setrlimit(RLIMIT_NOFILE, &scarce);
  const ssize_t told = ::send(ours.get(), &byte, 1, 0);
  const auto used_before = processor_time();
  const auto event = endpoint->receive(kWhile);
  const auto used = processor_time() - used_before;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(limited, 0);
  ASSERT_EQ(told, 1);
  EXPECT_LT(used, kWhile / 10);
  EXPECT_EQ(code_of(event), ErrorCode::kTimeout);
  EXPECT_TRUE(await_up(*endpoint, 1));
}

TEST_F(LinkedProcesses, WithoutPollTheirThreadsRest) {
  constexpr std::chrono::milliseconds kWhile{500};
  const LinkTimes times{.ping = std::chrono::milliseconds(20)};  // both threads wake up often
  const auto zero = zero_.start({peer_one_}, times);
  const auto one = one_.start({peer_zero_}, times);
  ASSERT_TRUE(await_up(*zero, 1));
  ASSERT_TRUE(await_up(*one, 0));
  ASSERT_TRUE(zero->receive(kLong)) << "it is up";
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;  // poll() with more descriptors fails
  const int limited = ::setrlimit(RLIMIT_NOFILE, &none);
  const auto used_before = processor_time();
  const auto event = zero->receive(kWhile);
  const auto used = processor_time() - used_before;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(limited, 0);
  EXPECT_EQ(code_of(event), ErrorCode::kTimeout);
  EXPECT_LT(used, kWhile / 2);
  ASSERT_TRUE(one->send(0, bytes_message(4, "")));
  EXPECT_EQ(next_number(*zero), 4U);
  EXPECT_EQ(state_of(*zero, 1).count, 1U);
}

TEST_F(LinkedProcesses, ClosingEndsTheConnectionAlsoForAForkedChild) {
  auto zero = zero_.start({peer_one_});
  const auto one = one_.start({peer_zero_}, {.silence = std::chrono::hours(1)});
  ASSERT_TRUE(await_up(*one, 0));
  const Child child([] {
    ::alarm(60);
    while (true) ::pause();
  });
  zero.reset();
  EXPECT_TRUE(await([&] { return !state_of(*one, 0).is_up; }));
}

}  // namespace
}  // namespace deepfreeze::link_test
