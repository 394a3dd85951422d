#include "power_cut/trainer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <tuple>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTensorsMax = 6;
constexpr std::size_t kSmallWordsMax = 2'000;
constexpr std::size_t kLargeWords = 800'000;  // more than a slab
constexpr std::uint64_t kLargeEvery = 7;      // steps
constexpr int kReadyMilliseconds = 1'000;

std::vector<std::size_t> sizes_at(std::uint64_t step, std::mt19937_64& random) {
  std::vector<std::size_t> sizes(1 + random() % kTensorsMax);
  for (std::size_t& size : sizes) size = random() % kSmallWordsMax;
  if (step % kLargeEvery == 0) sizes.front() = kLargeWords + random() % kSmallWordsMax;
  return sizes;
}

std::string key_of(std::size_t tensor) { return fmt::format("tensor.{}", tensor); }

std::span<const std::byte> bytes_of(const std::vector<std::uint64_t>& words) {
  return std::as_bytes(std::span(words));
}

// The child's whole life. It neither returns nor unwinds: the test's objects are not its own.
[[noreturn]] void train(const TrainerPlan& plan, int say) {
  set_log_sink([](std::string_view) {});
  if (!plan.fail_point.empty()) std::ignore = fail_points::arm(plan.fail_point);
  Options options;
  options.keep.last = 2;
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

StateOfStep::StateOfStep(std::uint64_t step) : step_(step) {
  std::mt19937_64 random(step);
  for (const std::size_t size : sizes_at(step, random)) {
    std::vector<std::uint64_t>& words = tensors_.emplace_back(size);
    for (std::uint64_t& word : words) word = random();
  }
}

TensorTable StateOfStep::table() const {
  TensorTable table;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    table.push_back(
        {.spec = {.key = key_of(i), .dtype = DType::kU64, .shape = {tensors_[i].size()}},
         .data = bytes_of(tensors_[i])});
  }
  return table;
}

std::string StateOfStep::objects() const { return fmt::format(R"({{"step":{}}})", step_); }

std::string StateOfStep::difference(const OpenCheckpoint& checkpoint) const {
  if (checkpoint.objects() != objects()) return "its objects are " + checkpoint.objects();
  if (checkpoint.tensors().size() != tensors_.size()) return "it has other tensors";
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<std::uint64_t> found(tensors_[i].size());
    const RestoreTarget target{key_of(i), std::as_writable_bytes(std::span(found))};
    const Status read = checkpoint.read(std::span(&target, 1));
    if (!read) return read.error().message();
    if (found != tensors_[i]) return key_of(i) + " has other bytes";
  }
  return {};
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

void Trainer::wait_until_saving() { collect(kReadyMilliseconds); }

bool Trainer::wait_for_death(std::uint32_t milliseconds) {
  const auto until = Monotonic::now() + std::chrono::milliseconds(milliseconds);
  while (!dead_) {
    dead_ = ::waitpid(process_, nullptr, WNOHANG) == process_;
    if (dead_ || Monotonic::now() >= until) break;
    ::usleep(100);
  }
  return dead_;
}

void Trainer::kill() {
  if (process_ <= 0 || dead_) return;
  ::kill(process_, SIGKILL);
  dead_ = ::waitpid(process_, nullptr, 0) == process_;
}

std::vector<std::uint64_t> Trainer::acknowledged() {
  collect(0);
  return acknowledged_;
}

}  // namespace deepfreeze
