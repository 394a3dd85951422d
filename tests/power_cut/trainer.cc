#include "power_cut/trainer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "cli/cli.h"
#include "deepfreeze/deepfreeze.h"
#include "support/state_of_step.h"

namespace deepfreeze {
namespace {

constexpr int kReadyMilliseconds = 1'000;
constexpr int kPollMilliseconds = 5;

// The child's whole life. It neither returns nor unwinds: the test's objects are not its own.
[[noreturn]] void train(const TrainerPlan& plan, int say) {
  set_log_sink([](std::string_view) {});
  if (!plan.fail_point.empty()) std::ignore = fail_points::arm(plan.fail_point);
  if (plan.is_buffered) ::setenv("DEEPFREEZE_IO", "buffered", 1);
  if (!plan.program.empty()) ::_exit(call_program(plan.program));
  Options options;
  options.keep.last = 3;  // two copies in turn: a file of two of them
  options.agent = no_agent();
  options.near = Near::kNode;
  options.tiers = {{.path = far_of(plan.run), .keep = {.last = 2}}};
  options.reuse_bytes_min = 1;  // these states are small
  auto run = Checkpointer::open(plan.run, options);
  if (!run) ::_exit(2);
  const auto found = run->candidates();
  if (!found) ::_exit(3);
  std::uint64_t step = 1;
  if (!found->empty()) {
    if (!run->continue_from(found->front())) ::_exit(4);
    step = found->front().step + 1;
  }
  for (;; ++step) {
    const StateOfStep state(step);
    const auto handle =
        run->save({.step = step, .tensors = state.table(), .objects = state.objects()});
    if (!handle || !*handle || !(*handle)->wait(Level::kDurable)) ::_exit(5);
    if (::write(say, &step, sizeof(step)) != sizeof(step)) ::_exit(6);
  }
}

}  // namespace

int call_program(const std::vector<std::string>& words) {
  std::vector<const char*> arguments = {"deepfreeze"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  std::ostringstream said;
  return run_cli(static_cast<int>(arguments.size()), arguments.data(), {.out = said, .err = said});
}

Trainer::Trainer(const TrainerPlan& plan) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  said_ = UniqueFd(ends[0]);
  const UniqueFd say(ends[1]);
  process_ = ::fork();
  if (process_ == 0) train(plan, say.get());
}

Trainer::~Trainer() { kill(); }

void Trainer::collect(int wait_milliseconds) {
  pollfd waiting{.fd = said_.get(), .events = POLLIN, .revents = 0};
  while (::poll(&waiting, 1, wait_milliseconds) > 0) {
    std::uint64_t step = 0;
    if (::read(said_.get(), &step, sizeof(step)) != sizeof(step)) return;  // its end is closed
    acknowledged_.push_back(step);
    wait_milliseconds = 0;
  }
}

void Trainer::wait_for_saves(std::size_t count) {
  const auto until = Monotonic::now() + std::chrono::milliseconds(kReadyMilliseconds);
  while (!wait_for_death(0) && acknowledged_.size() < count && Monotonic::now() < until) {
    collect(kPollMilliseconds);
  }
}

bool Trainer::wait_for_death(std::uint32_t milliseconds) {
  const auto until = Monotonic::now() + std::chrono::milliseconds(milliseconds);
  while (!dead_) {
    dead_ = ::waitpid(process_, &end_, WNOHANG) == process_;
    if (dead_ || Monotonic::now() >= until) break;
    ::usleep(100);
  }
  return dead_;
}

bool Trainer::was_killed() const { return dead_ && WIFSIGNALED(end_); }

void Trainer::kill() {
  if (process_ <= 0 || dead_) return;
  ::kill(process_, SIGKILL);
  dead_ = ::waitpid(process_, &end_, 0) == process_;
}

std::vector<std::uint64_t> Trainer::acknowledged() {
  collect(0);
  return acknowledged_;
}

}  // namespace deepfreeze
