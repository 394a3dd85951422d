#include "nodes/heirs/trainer_processes.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <tuple>

#include "base/fail_point.h"
#include "base/log.h"

namespace deepfreeze::heirs_test {
namespace {

constexpr std::chrono::milliseconds kWaitMax{60'000};
constexpr std::chrono::milliseconds kCommitMax{30'000};
constexpr std::uint64_t kValues = 200'000;  // of each rank: several blocks

std::string key_of(std::uint32_t rank) { return "rank" + std::to_string(rank); }

std::vector<std::uint64_t> state_of(std::uint64_t step, std::uint32_t rank) {
  std::vector<std::uint64_t> values(kValues);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (step * 100 + rank) * kValues + i;
  return values;
}

Options options_of(const RankPlan& plan, std::shared_ptr<RankGroup> group) {
  Options options;
  options.ranks = std::move(group);
  options.near = Near::kNode;
  options.link = "lo";
  options.commit_wait_max = kCommitMax;
  options.tiers = plan.tiers;
  if (!plan.agent.empty()) options.agent = Agent{.directory = plan.agent.string(), .command = {}};
  return options;
}

// The newest step, if its values are those that were saved; 0 without one.
Result<std::uint64_t> resume(Checkpointer& run, std::uint32_t rank) {
  std::vector<std::uint64_t> values(kValues);
  DF_TRY(const auto found, run.candidates());
  if (found.empty()) return std::uint64_t{0};
  const std::vector<RestoreTarget> targets = {
      {key_of(rank), std::as_writable_bytes(std::span(values))}};
  DF_TRY(const auto restored, restore_newest(run, targets));
  const std::uint64_t step = restored.restored.step;
  if (values == state_of(step, rank)) return step;
  return fail(ErrorCode::kCorrupt, "the values are not those that were saved");
}

// A whole life. It neither returns nor unwinds: the test's objects are not its own.
[[noreturn]] void live(const RankPlan& plan, std::uint32_t rank, PipeRanks& ranks, int socket) {
  const auto tell = [socket](Said said, std::uint64_t step) {
    const Word word{.said = said, .step = step};
    if (::send(socket, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word)) ::_exit(6);
  };
  set_log_sink([](std::string_view) {});
  auto run = Checkpointer::open(plan.run, options_of(plan, ranks.join(rank)));
  if (!run) {
    log_warning(run.error().message());
    ::_exit(2);
  }
  const auto start = resume(*run, rank);
  if (!start) {
    log_warning(start.error().message());
    tell(Said::kWrong, 0);
    ::_exit(3);
  }
  tell(Said::kOpened, *start);
  char order = 0;
  std::vector<std::jthread> tellers;  // this process ends without joining them
  for (std::uint64_t step = *start + 1; ::read(socket, &order, 1) == 1; ++step) {
    if (!plan.stops_at.empty() && step - *start == plan.stops_in) {
      fail_points::start_recording();
      if (!fail_points::arm(plan.stops_at + "=sleep:600000")) ::_exit(4);
      tellers.emplace_back([&, step] {
        if (fail_points::await_recorded(plan.stops_at)) tell(Said::kStopped, step);
      });
    }
    const auto values = state_of(step, rank);
    const TensorTable table = {
        {.spec = {.key = key_of(rank), .dtype = DType::kU64, .shape = {kValues}},
         .data = std::as_bytes(std::span(values))}};
    const auto handle = run->save({.step = step, .tensors = table, .objects = "[]"});
    if (!handle || !*handle) ::_exit(5);
    if ((*handle)->wait(Level::kCaptured, kWaitMax)) tell(Said::kCaptured, step);
    const Status local = (*handle)->wait(Level::kLocal, kWaitMax);
    if (!local) log_warning(local.error().message());
    tell(local ? Said::kLocal : Said::kFailed, step);
  }
  ::_exit(0);
}

}  // namespace

TrainerProcesses::TrainerProcesses(const std::vector<RankPlan>& plans) {
  PipeRanks ranks(static_cast<std::uint32_t>(plans.size()));
  for (std::uint32_t rank = 0; rank < plans.size(); ++rank) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) ::abort();
    UniqueFd own(ends[0]);
    const UniqueFd far(ends[1]);
    const pid_t process = ::fork();
    if (process == 0) {
      own = UniqueFd();
      ranks_.clear();
      live(plans[rank], rank, ranks, far.get());
    }
    ranks_.push_back({.process = process, .socket = std::move(own)});
  }
}

TrainerProcesses::~TrainerProcesses() { kill_all(); }

void TrainerProcesses::save(std::size_t steps) {
  const std::string orders(steps, 's');
  for (const Rank& rank : ranks_) {
    std::ignore = ::send(rank.socket.get(), orders.data(), orders.size(), MSG_NOSIGNAL);
  }
}

std::optional<Word> TrainerProcesses::next(std::uint32_t rank) {
  Word word;
  const ssize_t count = ::read(ranks_[rank].socket.get(), &word, sizeof(word));
  return count == sizeof(word) ? std::optional(word) : std::nullopt;
}

void TrainerProcesses::kill(std::uint32_t rank) {
  pid_t& process = ranks_[rank].process;
  if (process <= 0) return;
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  process = 0;
}

void TrainerProcesses::kill_all() {
  for (const Rank& rank : ranks_) {
    if (rank.process > 0) ::kill(rank.process, SIGKILL);
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) kill(rank);
}

}  // namespace deepfreeze::heirs_test
