// An agent in a thread; its trainers are processes of their own, which only connect and wait to be
// killed: the tests make the saves that they leave.
#include "agent/agent.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/agent_link.h"
#include "base/log.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/run_file.h"
#include "save/left_trainer.h"
#include "storage/posix_vfs.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kDeadline{60'000};

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    set_log_sink([](std::string_view) {});
    std::filesystem::create_directory(run_);
    vfs_ = *open_posix_vfs(run_);
    run_id_ = create_or_open_run(*vfs_, std::nullopt)->run_id;
    generation_ = claim_generation(*vfs_, run_id_, std::nullopt)->generation;
  }
  ~AgentTest() override {
    end();
    for (const pid_t process : processes_) kill_and_wait(process);
    set_log_sink({});
  }

  // Unless it is to wait for its trainers, it does not when the test is over.
  void start(AgentServerSettings settings = {.directory = {}, .idle_max = {}, .end_max = {}}) {
    settings.directory = place_;
    auto server = AgentServer::open(std::move(settings));
    ASSERT_TRUE(server) << server.error().message();
    server_ = *std::move(server);
    end_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { ended_ = server_->run(end_fd_.get()); });
  }
  // As by SIGTERM.
  void end() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(end_fd_.get(), &one, sizeof(one)), 8);
    await_end();
  }
  void await_end() {
    thread_.join();
    server_.reset();
  }

  [[nodiscard]] Result<MessageSocket> connect() const {
    return MessageSocket::connect(place_ / kAgentSocket);
  }

  // A process that has said hello, and lives until it is killed.
  pid_t begin_trainer(const LeftTrainer& trainer, std::vector<Tier> tiers = {},
                      bool with_arena = true) {
    AgentRequest hello;
    hello.hello = {.run = run_.string(), .tiers = std::move(tiers)};
    const std::string first = encode(hello);
    const std::string second =
        encode(AgentRequest{.kind = AgentRequest::Kind::kArena, .hello = {}});
    const std::array handover = {const_cast<LeftTrainer&>(trainer).handover().fd()};
    const std::array arena = {trainer.arena_fd()};
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    const pid_t process = ::fork();
    if (process == 0) {
      const auto socket = connect();
      bool done = socket && socket->send(first, handover) && socket->receive(kDeadline);
      if (with_arena) done = done && socket->send(second, arena);
      std::ignore = ::write(ready[1], done ? "y" : "n", 1);
      while (true) ::pause();
    }
    char said = 0;
    EXPECT_EQ(::read(ready[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
    processes_.push_back(process);
    return process;
  }
  void kill_and_wait(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    std::erase(processes_, process);
  }

  // Returns once the agent has settled the run.
  void settle() {
    AgentRequest hello;
    hello.hello = {.run = run_.string(), .commits = false, .settles = true, .tiers = {}};
    const auto socket = connect();
    const auto handover = Handover::make();
    const std::array files = {(*handover)->fd()};
    ASSERT_TRUE(socket);
    ASSERT_TRUE(socket->send(encode(hello), files));
    for (int answers = 0; answers < 2; ++answers) {
      const auto answer = socket->receive(kDeadline);
      ASSERT_TRUE(answer) << answer.error().message();
      EXPECT_TRUE(decode_answer(answer->text));
    }
    say_bye(*socket);
  }
  static void say_bye(const MessageSocket& socket) {
    ASSERT_TRUE(socket.send(encode({.kind = AgentRequest::Kind::kBye, .hello = {}})));
    const auto answer = socket.receive(kDeadline);
    EXPECT_TRUE(answer && decode_answer(answer->text));
  }
  // Of this process, and for as long as the socket is there.
  [[nodiscard]] MessageSocket say_hello(LeftTrainer& trainer, const std::string& run,
                                        std::vector<Tier> tiers = {}) {
    auto socket = connect();
    EXPECT_TRUE(socket);
    AgentRequest hello;
    hello.hello = {.run = run, .tiers = std::move(tiers)};
    const std::array handover = {trainer.handover().fd()};
    const std::array arena = {trainer.arena_fd()};
    EXPECT_TRUE(socket->send(encode(hello), handover));
    EXPECT_TRUE(socket->receive(kDeadline));
    EXPECT_TRUE(socket->send(encode({.kind = AgentRequest::Kind::kArena, .hello = {}}), arena));
    return *std::move(socket);
  }

  [[nodiscard]] AgentStatus status() const {
    const auto socket = connect();
    if (!socket || !socket->send(encode({.kind = AgentRequest::Kind::kStatus, .hello = {}}))) {
      ADD_FAILURE() << "there is no agent";
      return {.clients = {{}}};
    }
    const auto answer = socket->receive(kDeadline);
    const auto told = answer ? decode_status(answer->text) : std::unexpected(answer.error());
    EXPECT_TRUE(told) << told.error().message();
    return told.value_or(AgentStatus{.clients = {{}}});
  }

  [[nodiscard]] std::size_t committed(const std::filesystem::path& path) const {
    const auto vfs = open_posix_vfs(path);
    if (!vfs) return 0;
    const auto listing = read_run(**vfs);
    if (!listing) return 0;
    return static_cast<std::size_t>(
        std::ranges::count_if(listing->attempts, &AttemptState::committed));
  }

  [[nodiscard]] LeftTrainer trainer() { return {*vfs_, run_id_, generation_}; }

  ScopedDir dir_;
  std::filesystem::path place_ = dir_.path() / "agent";
  std::filesystem::path run_ = dir_.path() / "run";
  std::unique_ptr<Vfs> vfs_;
  std::string run_id_;
  std::uint64_t generation_ = 0;
  std::unique_ptr<AgentServer> server_;
  UniqueFd end_fd_;
  Status ended_;
  std::vector<pid_t> processes_;
  std::thread thread_;
};

TEST_F(AgentTest, FinishesWhatAKilledTrainerHadCaptured) {
  LeftTrainer gone = trainer();
  start();
  const pid_t process = begin_trainer(gone);
  gone.go_to(End::kCaptured);
  EXPECT_EQ(committed(run_), 0U);
  kill_and_wait(process);
  settle();
  EXPECT_EQ(committed(run_), 1U);
  const AgentStatus seen = status();
  ASSERT_FALSE(seen.clients.empty());
  EXPECT_EQ(seen.clients.back().outcome, "committed");
  EXPECT_EQ(seen.clients.back().process, process);
  EXPECT_EQ(seen.process, ::getpid());
}

TEST_F(AgentTest, DropsWhatWasNotCaptured) {
  LeftTrainer gone = trainer();
  start();
  const pid_t process = begin_trainer(gone);
  gone.go_to(End::kPlannedAndBegun);
  kill_and_wait(process);
  settle();
  EXPECT_TRUE(read_run(*vfs_)->attempts.empty());
}

TEST_F(AgentTest, LeavesALivingTrainerAlone) {
  LeftTrainer living = trainer();
  start();
  std::ignore = begin_trainer(living);
  living.go_to(End::kCaptured);
  settle();  // another process opens the same run: it does not wait for the living one
  EXPECT_EQ(committed(run_), 0U);
  const AgentStatus seen = status();
  EXPECT_EQ(seen.clients.front().state, "training");
}

TEST_F(AgentTest, ATrainerThatSaidByeLeftNoSave) {
  LeftTrainer gone = trainer();
  start();
  const MessageSocket socket = say_hello(gone, run_.string());
  gone.go_to(End::kCaptured);
  say_bye(socket);
  settle();
  EXPECT_EQ(committed(run_), 0U);
  EXPECT_TRUE(status().clients.empty());  // although its socket is still open, as in a forked child
}

// The process lives, so its save is its own, until it ends.
TEST_F(AgentTest, AConnectionThatIsLostIsNoDeath) {
  LeftTrainer living = trainer();
  start();
  std::ignore = say_hello(living, run_.string());
  living.go_to(End::kCaptured);
  EXPECT_EQ(status().clients.front().state, "training");
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(status().clients.front().state, "training");
  const MessageSocket again = say_hello(living, run_.string());
  EXPECT_EQ(status().clients.size(), 1U);  // it is the same trainer
  EXPECT_EQ(committed(run_), 0U);
}

// The process lives, but it is another program now.
TEST_F(AgentTest, AnExecIsADeath) {
  LeftTrainer before = trainer();
  LeftTrainer after = trainer();
  start();
  std::ignore = say_hello(before, run_.string());
  before.go_to(End::kCaptured);
  const MessageSocket now = say_hello(after, run_.string());
  settle();
  EXPECT_EQ(committed(run_), 1U);
}

// An agent in a PID namespace of its own sees all others as process 0.
TEST_F(AgentTest, TrainersWithoutANumberAreNotTakenForOne) {
  LeftTrainer living = trainer();
  LeftTrainer other = trainer();
  const pid_t outside = ::fork();
  if (outside == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(1);
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto server = AgentServer::open({.directory = place_});
      ::_exit(server && (*server)->run(-1) ? 0 : 1);
    }
    ::wait(nullptr);
    ::_exit(0);
  }
  processes_.push_back(outside);
  while (!connect()) {
    if (::waitpid(outside, nullptr, WNOHANG) == outside) {
      processes_.clear();
      GTEST_SKIP() << "LEFT OUT: this machine gives no PID namespace";
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::ignore = say_hello(living, run_.string());  // its connection is lost, and it lives
  living.go_to(End::kCaptured);
  const MessageSocket second = say_hello(other, run_.string());
  ASSERT_EQ(status().clients.front().process, 0);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(committed(run_), 0U);
}

TEST_F(AgentTest, TwoNamesOfARunAreOneRun) {
  LeftTrainer gone = trainer();
  start();
  const pid_t process = begin_trainer(gone);
  gone.go_to(End::kCaptured);
  kill_and_wait(process);
  std::filesystem::create_directory_symlink(run_, dir_.path() / "link");
  run_ = dir_.path() / "link" / ".." / "link";
  settle();
  EXPECT_EQ(committed(dir_.path() / "run"), 1U);
}

TEST_F(AgentTest, WithoutItsMemoryASaveCannotBeFinished) {
  LeftTrainer gone = trainer();
  start();
  const pid_t process = begin_trainer(gone, {}, /*with_arena=*/false);
  gone.go_to(End::kCaptured);
  kill_and_wait(process);
  settle();
  EXPECT_EQ(committed(run_), 0U);
  EXPECT_NE(status().clients.back().error, "");
}

TEST_F(AgentTest, BringsCheckpointsToTheTiersOfAGoneTrainer) {
  LeftTrainer gone = trainer();
  start();
  const auto far = dir_.path() / "far";
  const pid_t process = begin_trainer(gone, {{.path = far.string()}});
  gone.go_to(End::kCaptured);
  kill_and_wait(process);
  const auto socket = connect();
  ASSERT_TRUE(socket->send(
      encode({.kind = AgentRequest::Kind::kDrain, .hello = {}, .deadline = kDeadline})));
  const auto answer = socket->receive(kDeadline);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(decode_answer(answer->text)) << answer->text;
  await_end();
  EXPECT_TRUE(ended_);
  EXPECT_EQ(committed(far), 1U);
}

TEST_F(AgentTest, ADeadlineEndsAFlushAndSaysSo) {
  LeftTrainer gone = trainer();
  start();
  const auto far = dir_.path() / "far";
  const pid_t process = begin_trainer(gone, {{.path = far.string(), .bytes_per_second = 1}});
  gone.go_to(End::kCaptured);
  kill_and_wait(process);
  const auto socket = connect();
  ASSERT_TRUE(socket->send(
      encode({.kind = AgentRequest::Kind::kDrain, .hello = {}, .deadline = milliseconds(50)})));
  const auto answer = socket->receive(kDeadline);
  ASSERT_TRUE(answer);
  const Status done = decode_answer(answer->text);
  await_end();
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message().find(run_.string()), std::string::npos);
  EXPECT_FALSE(ended_);
  EXPECT_EQ(committed(run_), 1U);  // the save itself is finished all the same
  EXPECT_EQ(committed(far), 0U);
}

TEST_F(AgentTest, ANewTrainerWithTheSameTiersEndsTheFlushOfTheOldOne) {
  LeftTrainer gone = trainer();
  start();
  const std::vector<Tier> tiers = {{.path = (dir_.path() / "far").string(), .bytes_per_second = 1}};
  const pid_t process = begin_trainer(gone, tiers);
  gone.go_to(End::kCommitted);
  kill_and_wait(process);
  settle();
  LeftTrainer other = trainer();
  const MessageSocket reader = say_hello(other, run_.string());  // without its tiers
  while (status().clients.back().state != "flushing") {
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::this_thread::sleep_for(milliseconds(400));  // one that is told to end needs half of that
  EXPECT_EQ(status().clients.back().state, "flushing");
  LeftTrainer next = trainer();
  std::ignore = begin_trainer(next, tiers);
  while (status().clients.back().state != "done") std::this_thread::sleep_for(milliseconds(5));
}

TEST_F(AgentTest, ATrainerThatFlushesNeedsNoFlushBesideIt) {
  LeftTrainer gone = trainer();
  LeftTrainer living = trainer();
  start();
  const std::vector<Tier> tiers = {{.path = (dir_.path() / "far").string()}};
  const pid_t process = begin_trainer(gone, tiers);
  gone.go_to(End::kCommitted);
  const MessageSocket beside = say_hello(living, run_.string(), tiers);
  kill_and_wait(process);
  while (status().clients.back().state != "done") std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(committed(dir_.path() / "far"), 0U);
}

TEST_F(AgentTest, ADrainTellsWhatHasFailed) {
  LeftTrainer gone = trainer();
  start();
  const auto far = dir_.path() / "far";
  std::ofstream(far) << "no directory";
  const pid_t process = begin_trainer(gone, {{.path = far.string()}});
  gone.go_to(End::kCommitted);
  kill_and_wait(process);
  while (status().clients.empty() || status().clients.back().state != "done") {
    std::this_thread::sleep_for(milliseconds(5));
  }
  end();
  ASSERT_FALSE(ended_);
  EXPECT_NE(ended_.error().message().find(far.string()), std::string::npos)
      << ended_.error().message();
}

TEST_F(AgentTest, AFailureIsForgottenOnceTheRunHasWhatItWasToHave) {
  LeftTrainer gone = trainer();
  start();
  const auto far = dir_.path() / "far";
  std::ofstream(far) << "no directory";
  for (const bool is_mended : {false, true}) {
    if (is_mended) std::filesystem::remove(far);
    const pid_t process = begin_trainer(gone, {{.path = far.string()}});
    gone.go_to(End::kCaptured);
    kill_and_wait(process);
    while (status().clients.empty() || status().clients.back().state != "done" ||
           status().clients.back().process != process) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(status().clients.back().error.empty(), is_mended);
  }
  end();
  EXPECT_TRUE(ended_) << ended_.error().message();
  EXPECT_EQ(committed(far), 1U);
}

TEST_F(AgentTest, ARunThatWasTakenOverIsNoFailure) {
  LeftTrainer gone = trainer();
  start();
  const pid_t process = begin_trainer(gone);
  gone.go_to(End::kCaptured);
  ASSERT_TRUE(claim_generation(*vfs_, run_id_, std::nullopt));
  kill_and_wait(process);
  settle();
  EXPECT_EQ(status().clients.back().outcome, "dropped");
  EXPECT_EQ(status().clients.back().error, "");
  EXPECT_EQ(committed(run_), 0U);
}

TEST_F(AgentTest, EndsWhenThereIsNothingToDo) {
  start({.directory = {}, .idle_max = milliseconds(30)});
  await_end();
  EXPECT_TRUE(ended_);
}

TEST_F(AgentTest, StaysAsLongAsATrainerIsThere) {
  constexpr milliseconds kIdle{700};  // time enough for a trainer to come
  LeftTrainer living = trainer();
  start({.directory = {}, .idle_max = kIdle, .end_max = {}});
  const pid_t process = begin_trainer(living);
  std::this_thread::sleep_for(kIdle + milliseconds(50));
  EXPECT_EQ(status().clients.size(), 1U);
  kill_and_wait(process);
  await_end();
}

// A trainer that opens the run meanwhile must not go on from an older step.
TEST_F(AgentTest, FinishesSavesForNewTrainersWhenItIsToldToEnd) {
  LeftTrainer gone = trainer();
  start({.directory = {}, .idle_max = {}, .end_max = kDeadline});
  const pid_t process = begin_trainer(gone);
  gone.go_to(End::kCaptured);
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(end_fd_.get(), &one, sizeof(one)), 8);
  std::this_thread::sleep_for(milliseconds(20));
  kill_and_wait(process);
  settle();
  EXPECT_EQ(committed(run_), 1U);
  await_end();  // nobody is left
  EXPECT_TRUE(ended_);
}

TEST_F(AgentTest, OneIsAtWorkInADirectory) {
  start();
  const auto second = AgentServer::open({.directory = place_});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kExists);
  end();
  EXPECT_TRUE(AgentServer::open({.directory = place_}));
}

TEST_F(AgentTest, ADirectoryThatOthersMayEnterIsRefused) {
  std::filesystem::create_directory(place_);
  ASSERT_EQ(::chmod(place_.c_str(), 0755), 0);
  EXPECT_EQ(AgentServer::open({.directory = place_}).error().code(), ErrorCode::kUnsupported);
}

TEST_F(AgentTest, WhatIsNoMessageIsAnsweredByTheReason) {
  start();
  const auto socket = connect();
  for (const char* text : {"nonsense", R"({"protocol":9,"kind":"hello"})"}) {
    ASSERT_TRUE(socket->send(text));
    const auto answer = socket->receive(kDeadline);
    ASSERT_TRUE(answer);
    EXPECT_FALSE(decode_answer(answer->text));
  }
  EXPECT_TRUE(status().clients.empty());
}

TEST_F(AgentTest, ARunThatIsGoneIsAnErrorOfThatRunAlone) {
  LeftTrainer gone = trainer();
  start();
  const pid_t process = begin_trainer(gone);
  gone.go_to(End::kCaptured);
  std::filesystem::remove_all(run_);
  kill_and_wait(process);
  settle();
  EXPECT_NE(status().clients.back().error, "");
}

constexpr std::size_t kHugePage = 2 * 1024 * 1024;

ino_t inode_of(int fd) {
  struct stat found = {};
  EXPECT_EQ(::fstat(fd, &found), 0);
  return found.st_ino;
}

class AgentLinkTest : public AgentTest {
 protected:
  [[nodiscard]] std::unique_ptr<AgentLink> open(std::vector<std::string> command = {}) {
    return AgentLink::open({.directory = place_,
                            .command = std::move(command),
                            .hello = {.run = run_.string(), .settles = true, .tiers = {}}});
  }
  void expect_warning() {
    set_log_sink([this](std::string_view line) {
      if (line.find("no agent") != std::string_view::npos) ++warnings_;
    });
  }
  int warnings_ = 0;
};

TEST_F(AgentLinkTest, SaysHelloAndBye) {
  start();
  const auto link = open();
  ASSERT_TRUE(link->is_connected());
  ASSERT_EQ(status().clients.size(), 1U);
  EXPECT_EQ(status().clients.front().run, run_.string());
  EXPECT_TRUE(link->say_bye());
  EXPECT_FALSE(link->is_connected());
  EXPECT_FALSE(link->say_bye());
  while (!status().clients.empty()) std::this_thread::sleep_for(milliseconds(1));
}

TEST_F(AgentLinkTest, WithoutAnAgentThereIsOneWarning) {
  expect_warning();
  const auto link = open();
  ASSERT_TRUE(link);
  EXPECT_FALSE(link->is_connected());
  link->keep_up();
  link->keep_up();
  EXPECT_EQ(warnings_, 1);
}

TEST_F(AgentLinkTest, AProgramThatDoesNotStartIsNamed) {
  std::string said;
  set_log_sink([&](std::string_view line) { said += line; });
  const auto link = open({(dir_.path() / "no-program").string()});
  EXPECT_FALSE(link->is_connected());
  EXPECT_NE(said.find("no-program"), std::string::npos) << said;
  said.clear();
  const auto failed = open({"false"});
  EXPECT_FALSE(failed->is_connected());
  EXPECT_NE(said.find("start the agent: false"), std::string::npos) << said;
}

// Else a larger one beside it would take twice the memory.
TEST_F(AgentLinkTest, AnArenaThatGoesIsKeptByNobody) {
  start();
  const auto link = open();
  auto arena = SharedMemory::allocate(kHugePage);
  ASSERT_TRUE(arena);
  const auto holders = [inode = inode_of(arena->fd())] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      struct stat found = {};
      if (::stat(entry.path().c_str(), &found) == 0 && found.st_ino == inode) ++count;
    }
    return count;
  };
  link->use_arena(arena->fd());
  link->keep_up();
  while (holders() != 3)
    std::this_thread::sleep_for(milliseconds(1));  // ours, the link's, the agent's
  link->use_arena(-1);
  while (holders() != 1) std::this_thread::sleep_for(milliseconds(1));
  link->use_arena(arena->fd());
  EXPECT_TRUE(link->say_bye());
  EXPECT_EQ(holders(), 1U);
}

TEST_F(AgentLinkTest, ConnectsAgainToAnotherAgent) {
  start();
  const auto link = open();
  ASSERT_TRUE(link->is_connected());
  end();
  EXPECT_FALSE(link->is_connected());
  start();
  link->keep_up();
  EXPECT_TRUE(link->is_connected());
  EXPECT_EQ(status().clients.size(), 1U);
}

}  // namespace
}  // namespace deepfreeze
