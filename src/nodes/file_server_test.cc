// Peers that ask for more than their share, and servers that are closed in between.
#include "nodes/file_server.h"

#include <atomic>
#include <future>
#include <latch>
#include <new>
#include <semaphore>

#include "base/log.h"
#include "nodes/remote_fixture.h"
#include "support/no_more_threads.h"

namespace deepfreeze::nodes_test {
namespace {

LinkRead whole_read(std::uint64_t number, std::uint64_t size, std::uint32_t rank = 0) {
  return {
      .number = number, .attempt = kAttempt, .file = sealed_file(rank), .offset = 0, .size = size};
}

// The disk's first read waits until released(); names of all reads, in their order.
class HeldDisk {
 public:
  [[nodiscard]] std::unique_ptr<Vfs> over(std::unique_ptr<Vfs> disk) {
    return std::make_unique<HeldVfs>(std::move(disk), [this](std::string_view name) {
      begun_.release();
      released_.wait();
      const std::lock_guard lock(mutex_);
      names_.emplace_back(name);
    });
  }
  void await_begun() { begun_.acquire(); }
  void release() { released_.count_down(); }
  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  std::counting_semaphore<> begun_{0};
  std::latch released_{1};
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
};

LinkBytes heard_bytes(RawPeer& peer) {
  while (const auto message = peer.hear()) {
    if (const auto* bytes = std::get_if<LinkBytes>(&*message)) return *bytes;
  }
  return {};
}

class FileServerTest : public LinkTest {
 protected:
  NodeDirectory directory_;
  Node zero_{0};
};

TEST_F(FileServerTest, ServesPeersInTurn) {
  Node one(1);
  Node two(2);
  Node three(3);
  const auto endpoint = zero_.start({one.awaited(), two.awaited(), three.awaited()});
  for (const std::uint32_t rank : {1U, 2U, 3U}) directory_.write(sealed_path(rank), "0");
  HeldDisk disk;
  const auto server = FileServer::start(*endpoint, disk.over(directory_.vfs())).value();
  server->take(2, whole_read(1, 1, 2));
  disk.await_begun();
  for (std::uint64_t number = 2; number <= 6; ++number) server->take(2, whole_read(number, 1, 2));
  for (std::uint64_t number = 1; number <= 2; ++number) server->take(3, whole_read(number, 1, 3));
  server->take(1, whole_read(1, 1, 1));
  disk.release();
  ASSERT_TRUE(await([&] { return disk.names().size() == 9; }));
  std::vector<std::string> wanted;
  for (const std::uint32_t rank : {2U, 3U, 1U, 2U, 3U, 2U, 2U, 2U, 2U})
    wanted.push_back(sealed_path(rank));
  EXPECT_EQ(disk.names(), wanted);
}

TEST_F(FileServerTest, RefusedMemoryCostsOneAnswer) {
  set_log_sink([](std::string_view) {});
  directory_.write(sealed_path(), "abc");
  Node one(1);
  const auto endpoint = zero_.start({one.awaited()});
  std::atomic<bool> refuses{true};
  const auto server =
      FileServer::start(*endpoint, std::make_unique<HeldVfs>(directory_.vfs(),
                                                             [&](std::string_view /*name*/) {
                                                               if (refuses.exchange(false))
                                                                 throw std::bad_alloc();
                                                             }))
          .value();
  const auto dispatcher = LinkDispatcher::start(*endpoint, {.reads = server.get()}).value();
  const auto peer = greeted(one, zero_.address);
  for (const std::uint64_t number : {1U, 2U}) {
    ASSERT_TRUE(peer->say_message(whole_read(number, 3)));
  }
  const auto answer = heard_bytes(*peer);
  EXPECT_EQ(answer.number, 2U);
  EXPECT_EQ(answer.bytes, "abc");
  set_log_sink({});
}

TEST_F(FileServerTest, APeerThatAsksForTooMuchIsToldSo) {
  Node one(1);
  directory_.write(sealed_path(), "0123");
  HeldDisk disk;
  const Serving serving(zero_, {one.awaited()}, disk.over(directory_.vfs()));
  const auto peer = greeted(one, zero_.address);
  ASSERT_TRUE(peer->say_message(whole_read(1, 4)));
  disk.await_begun();
  for (std::uint64_t number = 2; number <= kReadsWaitingMax + 3; ++number) {
    ASSERT_TRUE(peer->say_message(whole_read(number, 4)));
  }
  const auto next_answer = [&] {
    auto message = peer->hear();
    while (message && std::holds_alternative<LinkPing>(*message)) message = peer->hear();
    return message;
  };
  for (const std::uint64_t number : {kReadsWaitingMax + 2, kReadsWaitingMax + 3}) {
    const auto answer = next_answer();
    ASSERT_TRUE(answer && std::holds_alternative<LinkError>(*answer));
    EXPECT_EQ(std::get<LinkError>(*answer).number, number);
    EXPECT_EQ(std::get<LinkError>(*answer).error.code(), ErrorCode::kBusy);
  }
  disk.release();
  for (std::uint64_t number = 1; number <= kReadsWaitingMax + 1; ++number) {
    const auto answer = next_answer();
    ASSERT_TRUE(answer && std::holds_alternative<LinkBytes>(*answer));
    EXPECT_EQ(std::get<LinkBytes>(*answer).number, number);
    EXPECT_EQ(std::get<LinkBytes>(*answer).bytes, "0123");
  }
}

TEST_F(FileServerTest, PeersThatTakeNoAnswersCostBoundedMemoryAndHoldUpNobody) {
  constexpr std::uint32_t kGreedy = 30;
  constexpr std::uint64_t kAsked = 24;  // more than a socket's buffers hold
  const std::string whole = some_bytes(kMiB);
  directory_.write(sealed_path(), whole);
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<LinkPeer> peers;
  for (std::uint32_t rank = 1; rank <= kGreedy + 1; ++rank) {
    nodes.push_back(std::make_unique<Node>(rank));
    peers.push_back(nodes.back()->awaited());
  }
  const LinkPeer peer_zero = zero_.dialed();
  const Serving serving(zero_, std::move(peers), directory_.vfs());
  std::vector<std::unique_ptr<RawPeer>> greedy;
  for (std::uint32_t rank = 1; rank <= kGreedy; ++rank) {
    greedy.push_back(greeted(*nodes[rank - 1], zero_.address));
    for (std::uint64_t number = 1; number <= kAsked; ++number) {
      ASSERT_TRUE(greedy.back()->say_message(whole_read(number, kMiB)));
    }
  }
  const auto check = [&] {
    constexpr std::size_t kAnswer = kMiB + 4096;  // the one that a peer may always have
    for (std::uint32_t rank = 1; rank <= kGreedy; ++rank) {
      const LinkUnsent unsent = serving.endpoint->unsent(rank);
      EXPECT_LE(unsent.of_rank, kUnsentOfPeerMax + kAnswer);
      EXPECT_LE(unsent.of_all, kUnsentOfAllMax + (kGreedy + 1) * kAnswer);
    }
    return serving.endpoint->unsent(1).of_all >= kUnsentOfAllMax;
  };
  ASSERT_TRUE(await(check)) << "all of them together reach the bound";
  const Reading honest(*nodes.back(), {peer_zero});
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(*read_whole(*honest.files_of(0), sealed_path()) == whole);
    std::ignore = check();
  }
  for (std::uint64_t number = 1; number <= kAsked; ++number) {  // once it takes them, it gets all
    auto answer = greedy.front()->hear();
    while (answer && std::holds_alternative<LinkPing>(*answer)) answer = greedy.front()->hear();
    ASSERT_TRUE(answer);
    EXPECT_EQ(std::get<LinkBytes>(*answer).number, number);
  }
}

TEST_F(FileServerTest, ReadsOfALostLinkAreForgotten) {
  Node one(1);
  directory_.write(sealed_path(), "0123");
  HeldDisk disk;
  const Serving serving(zero_, {one.awaited()}, disk.over(directory_.vfs()));
  auto peer = greeted(one, zero_.address);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    ASSERT_TRUE(peer->say_message(whole_read(number, 4)));
  }
  disk.await_begun();
  peer.reset();
  peer = greeted(one, zero_.address);
  ASSERT_TRUE(peer->say_message(whole_read(6, 4)));
  // A message that comes back at once says that those before have been taken.
  for (std::uint64_t number = 7; number <= kReadsWaitingMax + 6; ++number) {
    ASSERT_TRUE(peer->say_message(whole_read(number, 4)));
  }
  const auto busy = peer->hear();
  ASSERT_TRUE(busy && std::holds_alternative<LinkError>(*busy));
  EXPECT_EQ(std::get<LinkError>(*busy).number, kReadsWaitingMax + 6) << "the others have a place";
  disk.release();
  ASSERT_TRUE(await([&] { return disk.names().size() == 1 + kReadsWaitingMax; }));
}

TEST_F(FileServerTest, CloseWaitsForOneReadOnly) {
  Node one(1);
  const auto endpoint = zero_.start({one.awaited()});
  directory_.write(sealed_path(), "0123");
  HeldDisk disk;
  const auto server = FileServer::start(*endpoint, disk.over(directory_.vfs())).value();
  for (std::uint64_t number = 1; number <= 5; ++number) server->take(1, whole_read(number, 4));
  disk.await_begun();
  server->end();
  disk.release();
  server->close();
  EXPECT_EQ(disk.names().size(), 1U);
  server->take(1, whole_read(6, 4));
  server->close();
}

TEST_F(FileServerTest, ClosesFilesInItsIdleTime) {
  Node one(1);
  directory_.write(sealed_path(), "0123");
  const auto endpoint = zero_.start({one.awaited()});
  const auto server =
      FileServer::start(*endpoint, directory_.vfs(), std::chrono::milliseconds(500)).value();
  const auto dispatcher = LinkDispatcher::start(*endpoint, {.reads = server.get()}).value();
  const auto peer = greeted(one, zero_.address);
  const std::size_t before = link_test::open_files();
  ASSERT_TRUE(peer->say_message(whole_read(1, 4)));
  ASSERT_TRUE(peer->hear());
  EXPECT_EQ(link_test::open_files(), before + 1);
  EXPECT_TRUE(await([&] { return link_test::open_files() == before; }));
}

TEST_F(FileServerTest, NeedsAThread) {
  const auto endpoint = zero_.start({});
  const NoMoreThreads scope;
  EXPECT_EQ(code_of(FileServer::start(*endpoint, directory_.vfs())), ErrorCode::kNoSpace);
}

}  // namespace
}  // namespace deepfreeze::nodes_test
