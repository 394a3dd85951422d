// Two nodes, two ranks on each, and an agent on each. Trainers are killed once all ranks have
// captured a save, and stand at any step of it: the save is committed on both nodes, those trainers
// that live on hear of it, and the next job goes on from it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "agent/agent_process.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "ipc/message_socket.h"
#include "manifest/run_directory.h"
#include "nodes/heirs/trainer_processes.h"
#include "storage/posix_vfs.h"
#include "support/number_from.h"
#include "support/scoped_dir.h"

namespace deepfreeze::heirs_test {
namespace {

using std::chrono::milliseconds;
using Ranks = std::set<std::uint32_t>;

constexpr std::uint32_t kRanks = 4;  // 0 and 1 on the first node, 2 and 3 on the other
constexpr milliseconds kDeadline{60'000};
constexpr std::uint64_t kLives = 8;
constexpr std::size_t kSavesMax = 10'000;  // no job lives for so many
constexpr int kLifeMicros = 200'000;
constexpr int kGapMicros = 20'000;

class Heirs : public testing::Test {
 protected:
  Heirs() {
    set_log_sink([](std::string_view) {});
    for (const char* node : {"a", "b"}) {
      std::filesystem::create_directory(dir_.path() / node);
      start_agent(node);
    }
  }
  ~Heirs() override {
    for (const char* node : {"a", "b"}) kill_agent(node);
    set_log_sink({});
  }

  [[nodiscard]] std::filesystem::path agent_of(const std::string& node) const {
    return dir_.path() / node / "agent";
  }
  [[nodiscard]] std::filesystem::path run_of(const std::string& node) const {
    return dir_.path() / node / "run";
  }
  static const char* node_of(std::uint32_t rank) { return rank < 2 ? "a" : "b"; }

  void start_agent(const std::string& node) const {
    const Status started = start_agent_in_background({.directory = agent_of(node)});
    EXPECT_TRUE(started) << started.error().message();
  }
  void kill_agent(const std::string& node) const {
    const auto socket = MessageSocket::connect(agent_of(node) / kAgentSocket);
    if (!socket) return;
    ::kill(socket->peer(), SIGKILL);
    while (MessageSocket::connect(agent_of(node) / kAgentSocket)) ::usleep(100);
    ::waitpid(socket->peer(), nullptr, 0);
  }

  // These ranks stop at the fail point in their save.
  [[nodiscard]] std::vector<RankPlan> plans(const Ranks& stopped = {},
                                            const std::string& at = {}) const {
    std::vector<RankPlan> plans;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const char* node = node_of(rank);
      plans.push_back({.run = run_of(node), .agent = agent_of(node), .stops_at = {}});
      if (stopped.contains(rank)) plans.back().stops_at = at;
    }
    return plans;
  }

  static void expect_next(TrainerProcesses& job, std::uint32_t rank, Said said,
                          std::uint64_t step) {
    const auto word = job.next(rank);
    ASSERT_TRUE(word) << "rank " << rank << " is dead";
    EXPECT_EQ(static_cast<int>(word->said), static_cast<int>(said)) << "rank " << rank;
    EXPECT_EQ(word->step, step) << "rank " << rank;
  }
  static void expect_all(TrainerProcesses& job, Said said, std::uint64_t step,
                         const Ranks& without = {}) {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      if (!without.contains(rank)) expect_next(job, rank, said, step);
    }
  }

  // They have come to the step of their death, and have captured the save or not.
  static void await_stopped(TrainerProcesses& job, const Ranks& stopped, std::uint64_t step,
                            bool has_captured = true) {
    for (const std::uint32_t rank : stopped) {
      std::set<Said> said;
      for (int words = has_captured ? 2 : 1; words > 0; --words) {
        const auto word = job.next(rank);
        ASSERT_TRUE(word && word->step == step) << "rank " << rank;
        said.insert(word->said);
      }
      EXPECT_TRUE(said.contains(Said::kStopped)) << "rank " << rank;
      EXPECT_EQ(said.contains(Said::kCaptured), has_captured) << "rank " << rank;
    }
  }
  // The first save of the run.
  void save_one() const {
    TrainerProcesses job(plans());
    expect_all(job, Said::kOpened, 0);
    job.save();
    expect_all(job, Said::kCaptured, 1);
    expect_all(job, Said::kLocal, 1);
  }

  void expect_to_go_on_from(std::uint64_t step) const {
    TrainerProcesses job(plans());
    expect_all(job, Said::kOpened, step);
    job.save();
    expect_all(job, Said::kCaptured, step + 1);
    expect_all(job, Said::kLocal, step + 1);
  }

  [[nodiscard]] static bool has_manifest(const std::filesystem::path& run, std::uint64_t step) {
    const auto listed = list_checkpoints(run);
    return listed && std::ranges::any_of(*listed, [&](const CheckpointInfo& info) {
             return info.step == step && info.fault.empty();
           });
  }
  [[nodiscard]] std::size_t undecided_on(const std::string& node) const {
    const auto vfs = open_posix_vfs(run_of(node));
    const auto listing = read_run(**vfs);
    return static_cast<std::size_t>(
        std::ranges::count_if(listing->attempts, &AttemptState::undecided));
  }
  [[nodiscard]] Result<SocketMessage> ask(const std::string& node,
                                          const AgentRequest& request) const {
    DF_TRY(const auto socket, MessageSocket::connect(agent_of(node) / kAgentSocket));
    DF_TRY_VOID(socket.send(encode(request)));
    return socket.receive(kDeadline);
  }
  // Until the node's agent is at that with one of its trainers.
  [[nodiscard]] bool await_state(const std::string& node, const std::string& state) const {
    const auto deadline = Monotonic::now() + kDeadline;
    while (Monotonic::now() < deadline) {
      const auto answer = ask(node, {.kind = AgentRequest::Kind::kStatus});
      const auto told = answer ? decode_status(answer->text) : std::unexpected(answer.error());
      if (told &&
          std::ranges::find(told->clients, state, &AgentClient::state) != told->clients.end()) {
        return true;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  // Without any trainer.
  static void await_commit(const std::filesystem::path& run, std::uint64_t step) {
    const auto deadline = Monotonic::now() + kDeadline;
    while (!has_manifest(run, step) && Monotonic::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(has_manifest(run, step)) << run;
  }
  void await_commit_on_all(std::uint64_t step) const {
    for (const char* node : {"a", "b"}) await_commit(run_of(node), step);
  }

  ScopedDir dir_;
};

struct Case {
  Ranks killed;
  const char* at;
  Ranks stopped;  // at that point, when they are killed
};

class KilledOnceCaptured : public Heirs, public testing::WithParamInterface<Case> {};

TEST_P(KilledOnceCaptured, TheSaveIsCommittedOnAllNodes) {
  const auto& [killed, at, stopped] = GetParam();
  save_one();
  {
    TrainerProcesses job(plans(stopped, at));
    expect_all(job, Said::kOpened, 1);
    job.save();
    expect_all(job, Said::kCaptured, 2, stopped);
    await_stopped(job, stopped, 2);
    for (const std::uint32_t rank : killed) job.kill(rank);
    expect_all(job, Said::kLocal, 2, killed);
    await_commit_on_all(2);
  }
  expect_to_go_on_from(2);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* at : {"part.created", "part.header_synced", "commit.sealed"}) {
    for (const Ranks& killed :
         {Ranks{0}, Ranks{1}, Ranks{2}, Ranks{3}, Ranks{0, 2}, Ranks{0, 1, 2, 3}}) {
      cases.push_back({killed, at, killed});
    }
  }
  // Rank 0 and the other leader, around the outcome: one of them comes to it.
  for (const char* at :
       {"commit.manifest_written", "commit.manifest_renamed", "commit.manifest_synced"}) {
    cases.push_back({{0}, at, {0}});
    cases.push_back({{2}, at, {2}});
    cases.push_back({{0, 2}, at, {0}});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Steps, KilledOnceCaptured, testing::ValuesIn(all_cases()),
                         [](const auto& test) {
                           std::string name = test.param.at;
                           std::ranges::replace(name, '.', '_');
                           return fmt::format("{}_{}", name, fmt::join(test.param.killed, ""));
                         });

class KilledBefore : public Heirs, public testing::WithParamInterface<Ranks> {};

// All others have captured it, and need not wait for their deadline.
TEST_P(KilledBefore, TheSaveIsGivenUpOnAllNodes) {
  save_one();
  {
    TrainerProcesses job(plans(GetParam(), "handover.planned"));
    expect_all(job, Said::kOpened, 1);
    job.save();
    expect_all(job, Said::kCaptured, 2, GetParam());
    await_stopped(job, GetParam(), 2, false);
    for (const std::uint32_t rank : GetParam()) job.kill(rank);
    expect_all(job, Said::kFailed, 2, GetParam());
  }
  expect_to_go_on_from(1);
  for (const char* node : {"a", "b"}) EXPECT_EQ(undecided_on(node), 0U);
}
INSTANTIATE_TEST_SUITE_P(Ranks, KilledBefore,
                         testing::Values(Ranks{0}, Ranks{1}, Ranks{2}, Ranks{3}, Ranks{0, 2}),
                         [](const auto& test) {
                           return fmt::format("{}", fmt::join(test.param, ""));
                         });

// Rank 0 has told the outcome to a process that dies before it has placed it, and goes on with
// nothing, so that its heir knows of no save.
TEST_F(Heirs, OfRankZeroAnswersAboutAnEarlierSave) {
  save_one();
  TrainerProcesses job(plans({2}, "commit.manifest_written"));
  expect_all(job, Said::kOpened, 1);
  job.save();
  expect_all(job, Said::kCaptured, 2, {2});
  await_stopped(job, {2}, 2);
  expect_all(job, Said::kLocal, 2, {2, 3});
  job.kill(0);
  ASSERT_TRUE(await_state("a", "answering other nodes"));
  job.kill(2);
  expect_next(job, 3, Said::kLocal, 2);
  await_commit_on_all(2);
  // An agent that is told to end has nothing left that must be done.
  const auto told = ask("a", {.kind = AgentRequest::Kind::kDrain, .deadline = milliseconds(1)});
  ASSERT_TRUE(told);
  EXPECT_TRUE(decode_answer(told->text)) << told->text;
}

TEST_F(Heirs, BringTheirNodesFilesToTheTier) {
  save_one();
  std::vector<RankPlan> all = plans({0, 1, 2, 3}, "part.created");
  const std::filesystem::path far = dir_.path() / "far";
  for (RankPlan& plan : all) plan.tiers = {Tier{.path = far.string()}};
  TrainerProcesses job(all);
  expect_all(job, Said::kOpened, 1);
  job.save();
  await_stopped(job, {0, 1, 2, 3}, 2);
  job.kill_all();
  await_commit(far, 2);
  const auto listed = list_checkpoints(far);
  ASSERT_TRUE(listed && !listed->empty());
  const auto faults = verify_checkpoint(listed->front(), {});
  EXPECT_TRUE(faults && faults->empty());
}

TEST_F(Heirs, AreThoseAgentsThatAreThereWhenTheSaveBegins) {
  save_one();
  {
    std::vector<RankPlan> all = plans({0, 1, 2, 3}, "part.created");
    for (RankPlan& plan : all) plan.stops_in = 2;
    TrainerProcesses job(all);
    expect_all(job, Said::kOpened, 1);
    job.save();
    expect_all(job, Said::kCaptured, 2);
    expect_all(job, Said::kLocal, 2);
    for (const char* node : {"a", "b"}) {
      kill_agent(node);
      start_agent(node);
    }
    job.save();
    await_stopped(job, {0, 1, 2, 3}, 3);
    job.kill_all();
    await_commit_on_all(3);
  }
  expect_to_go_on_from(3);
}

// The newest step that a rank has told to be captured, once it is dead.
std::uint64_t captured_by(TrainerProcesses& job, std::uint32_t rank) {
  std::uint64_t captured = 0;
  while (const auto word = job.next(rank)) {
    if (word->said == Said::kCaptured) captured = word->step;
  }
  return captured;
}

// Some ranks die at any moment, and the others when they hear of it or soon after.
TEST_F(Heirs, NothingThatAllRanksHaveCapturedIsLost) {
  const std::uint64_t seed = number_from("DEEPFREEZE_AGENT_SEED", std::random_device()());
  const std::uint64_t lives = number_from("DEEPFREEZE_AGENT_KILLS", kLives);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](int bound) { return std::uniform_int_distribution(0, bound - 1)(random); };
  std::uint64_t captured = 0;
  std::uint64_t least = 0;
  for (std::uint64_t life = 0; life < lives; ++life) {
    TrainerProcesses job(plans());
    std::uint64_t start = 0;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const auto opened = job.next(rank);
      ASSERT_TRUE(opened && opened->said == Said::kOpened) << "life " << life;
      start = opened->step;
      ASSERT_GE(start, least) << "life " << life << ": all ranks had captured it";
    }
    job.save(kSavesMax);
    ::usleep(static_cast<useconds_t>(below(kLifeMicros)));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      if (below(2) == 0) job.kill(rank);
    }
    if (below(2) == 0) ::usleep(static_cast<useconds_t>(below(kGapMicros)));
    job.kill_all();
    least = start + kSavesMax;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      least = std::min(least, std::max(start, captured_by(job, rank)));
    }
    captured += least - start;
  }
  std::printf("%llu jobs killed, %llu saves that all ranks had captured; none was lost\n",
              static_cast<unsigned long long>(lives), static_cast<unsigned long long>(captured));
  EXPECT_GT(captured, 0U);
}

}  // namespace
}  // namespace deepfreeze::heirs_test
