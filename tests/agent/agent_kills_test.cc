// Trainers with an agent are killed at random moments, and so are agents. A step that
// was acknowledged as captured is the newest of the next trainer, or a newer one is, byte for byte.
//
// DEEPFREEZE_AGENT_KILLS says how many are killed in each test; DEEPFREEZE_AGENT_SEED repeats one.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <random>
#include <thread>

#include "agent/agent_process.h"
#include "base/log.h"
#include "deepfreeze/deepfreeze.h"
#include "ipc/message_socket.h"
#include "support/number_from.h"
#include "support/scoped_dir.h"
#include "support/state_of_step.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kKills = 12;
constexpr milliseconds kDeadline{60'000};

enum class Said : std::uint8_t { kResumed, kBegun, kCaptured, kLocal, kWrong, kLost };
struct Word {
  std::uint64_t step = 0;
  Said said = Said::kResumed;
};

struct Plan {
  std::filesystem::path run;
  std::filesystem::path agent;
  std::uint64_t least = 0;  // the step that must be there
};

// A trainer's whole life. It neither returns nor unwinds: the test's objects are not its own.
[[noreturn]] void train(const Plan& plan, int say) {
  const auto tell = [say](Said said, std::uint64_t step) {
    const Word word{.step = step, .said = said};
    if (::write(say, &word, sizeof(word)) != sizeof(word)) ::_exit(6);
  };
  set_log_sink([](std::string_view) {});
  Options options;
  options.keep.last = 2;
  options.agent = Agent{.directory = plan.agent.string(), .command = {}};
  auto run = Checkpointer::open(plan.run, options);
  if (!run) ::_exit(2);
  const auto found = run->candidates();
  if (!found) ::_exit(3);
  std::uint64_t step = 0;
  if (!found->empty()) {
    step = found->front().step;
    auto opened = open_checkpoint(found->front());
    if (!opened || !StateOfStep(step).difference(*opened).what.empty()) tell(Said::kWrong, step);
    if (!run->continue_from(found->front())) ::_exit(4);
  }
  tell(step < plan.least ? Said::kLost : Said::kResumed, step);
  while (true) {
    const StateOfStep state(++step);
    tell(Said::kBegun, step);
    const auto handle =
        run->save({.step = step, .tensors = state.table(), .objects = state.objects()});
    if (!handle || !*handle || !(*handle)->wait(Level::kCaptured)) ::_exit(5);
    tell(Said::kCaptured, step);
    // Every other save goes on beside the next one.
    if (step % 2 == 0) continue;
    if ((*handle)->wait(Level::kLocal)) tell(Said::kLocal, step);
  }
}

class Child {
 public:
  explicit Child(const Plan& plan) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    said_ = UniqueFd(ends[0]);
    const UniqueFd say(ends[1]);
    process_ = ::fork();
    if (process_ == 0) train(plan, say.get());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  // Waits for the next word; nothing once it has died.
  std::optional<Word> next() {
    Word word;
    const ssize_t count = ::read(said_.get(), &word, sizeof(word));
    return count == sizeof(word) ? std::optional(word) : std::nullopt;
  }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  UniqueFd said_;
  pid_t process_ = 0;
};

class AgentKills : public testing::Test {
 protected:
  AgentKills() {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    start_agent();
  }
  ~AgentKills() override { kill_agent(); }

  void start_agent() {
    const Status started = start_agent_in_background({.directory = plan_.agent, .idle_max = {}});
    ASSERT_TRUE(started) << started.error().message();
  }
  void kill_agent() {
    const auto socket = MessageSocket::connect(plan_.agent / kAgentSocket);
    if (!socket) return;
    ::kill(socket->peer(), SIGKILL);
    while (MessageSocket::connect(plan_.agent / kAgentSocket)) ::usleep(100);
    ::waitpid(socket->peer(), nullptr, 0);
  }

  // Now and then: each trainer makes a claim, and a run with thousands of them begins slowly.
  void begin_run_anew(std::uint64_t trainer) {
    constexpr std::uint64_t kTrainersOfRun = 25;
    if (trainer % kTrainersOfRun != 0) return;
    plan_.run = dir_.path() / fmt::format("run-{}", trainer / kTrainersOfRun);
    plan_.least = 0;
  }

  // Lets a trainer live for a while, and takes its words. False once something is wrong.
  bool live(Child& child, const std::function<void()>& end) {
    const auto wait = std::uniform_int_distribution<int>(0, 30'000)(random_);
    const auto resumed = child.next();
    EXPECT_TRUE(resumed) << "the trainer did not begin";
    if (!resumed) return false;
    EXPECT_NE(resumed->said, Said::kLost)
        << "step " << plan_.least << " was acknowledged, and " << resumed->step << " is the newest";
    EXPECT_NE(resumed->said, Said::kWrong) << "step " << resumed->step;
    ::usleep(static_cast<useconds_t>(wait));
    end();
    captured_ = local_ = begun_ = resumed->step;
    while (const auto word = child.next()) {
      if (word->said == Said::kBegun) begun_ = word->step;
      if (word->said == Said::kCaptured) captured_ = word->step;
      if (word->said == Said::kLocal) local_ = word->step;
    }
    saves_ += captured_ - resumed->step;
    left_ += captured_ > local_ ? 1 : 0;
    EXPECT_LE(captured_, begun_);
    return !HasFailure();
  }

  void say(const char* what) const {
    const std::string line = fmt::format(
        "agent kills: {} {}, {} saves captured, {} trainers left one that they did not "
        "know committed; no acknowledgement was lost",
        kills_, what, saves_, left_);
    std::puts(line.c_str());
  }

  ScopedDir dir_;
  const std::uint64_t seed_ = number_from("DEEPFREEZE_AGENT_SEED", std::random_device()());
  const std::uint64_t kills_ = number_from("DEEPFREEZE_AGENT_KILLS", kKills);
  std::mt19937_64 random_{seed_};
  Plan plan_{.run = dir_.path() / "run", .agent = dir_.path() / "agent"};
  std::uint64_t captured_ = 0;
  std::uint64_t local_ = 0;
  std::uint64_t begun_ = 0;
  std::uint64_t saves_ = 0;
  std::uint64_t left_ = 0;  // trainers that had captured more than was committed, as they knew
};

TEST_F(AgentKills, NothingCapturedIsLostWithItsTrainer) {
  for (std::uint64_t i = 0; i < kills_; ++i) {
    begin_run_anew(i);
    Child child(plan_);
    ASSERT_TRUE(live(child, [&] { child.kill(); }));
    plan_.least = captured_;
  }
  Child last(plan_);
  ASSERT_TRUE(live(last, [&] { last.kill(); }));
  say("trainers killed");
  EXPECT_GT(left_, 0U) << "no save had to be finished";
}

TEST_F(AgentKills, AnAgentThatIsKilledTakesNothingAlong) {
  for (std::uint64_t i = 0; i < kills_; ++i) {
    begin_run_anew(i);
    Child child(plan_);
    ASSERT_TRUE(live(child, [&] {
      kill_agent();
      ::usleep(2'000);
      child.kill();
    }));
    plan_.least = local_;
    start_agent();
  }
  say("agents killed, then their trainers");
}

TEST_F(AgentKills, NothingCommittedIsLostWithBoth) {
  for (std::uint64_t i = 0; i < kills_; ++i) {
    begin_run_anew(i);
    Child child(plan_);
    const bool agent_first = i % 2 == 0;
    ASSERT_TRUE(live(child, [&] {
      if (agent_first) kill_agent();
      child.kill();
      if (!agent_first) kill_agent();
    }));
    plan_.least = local_;
    start_agent();
  }
  say("times a trainer and its agent killed");
}

}  // namespace
}  // namespace deepfreeze
