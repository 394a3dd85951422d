#include "nodes/crash/life.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "manifest/run_directory.h"
#include "nodes/crash/promises.h"

namespace deepfreeze::nodes_test {
namespace {

constexpr int kDepthMax = 3;  // of processes that act while others are within a call
constexpr std::size_t kJobsMax = 3;
constexpr std::size_t kActionsMax = 300;  // of one job
constexpr std::size_t kFewActions = 40;
constexpr std::uint64_t kLateByMax = 20;
constexpr std::size_t kLongWaitMax = 60;  // actions of others
constexpr std::size_t kCalmActionsMax = 5'000;
constexpr std::size_t kImagesMax = 12;
constexpr std::uint64_t kOperationsMax = 200;  // before a disk refuses one
constexpr std::uint64_t kFirstDigits = 0xa0;
constexpr int kEio = 5;

}  // namespace

Life::Life(LifePlan plan) : plan_(std::move(plan)), random_(plan_.seed) {
  for (std::size_t i = 0; i < plan_.machines; ++i) {
    machines_.push_back(std::make_unique<Machine>(
        Machine{.digits = kFirstDigits + i, .disk = std::make_unique<SimDisk>()}));
  }
  has_sound_jobs_ = below(2) == 0;
  is_unlucky_ = plan_.is_random && below(3) == 0;
  const auto run = create_or_open_run(*machines_.front()->disk, {});
  run_id_ = run.value().run_id;
  for (const auto& machine : machines_) machine->disk->plant(kRunFile, encode_run(*run));
}

Life::~Life() = default;

std::string Life::story() const {
  std::string text = fmt::format("seed {}, {} machines, strikes:", plan_.seed, plan_.machines);
  for (const Strike& strike : plan_.strikes) {
    text += fmt::format(" {}/{}", strike.event, static_cast<int>(strike.blow));
  }
  text += "\n  " + story_;
  for (const auto& job : jobs_) text += "\n  " + job->story();
  return text;
}

bool Life::lives_through(Process& process, Moment moment) {
  if (!process.is_alive) return false;
  const std::size_t event = events_++;
  for (const Strike& strike : plan_.strikes) {
    if (!is_calm_ && strike.event == event) this->strike(process, strike.blow);
  }
  const bool was_acting = std::exchange(process.is_acting, true);
  if (process.is_alive && depth_ < kDepthMax &&
      below(moment == Moment::kBeforeSync ? 5 : 12) == 0) {
    hold_up(process, moment);
  }
  process.is_acting = was_acting;
  return process.is_alive;
}

void Life::wait() {
  if (below(4) == 0) return;
  ++depth_;
  if (is_unlucky_) {
    act_until_told();
  } else {
    act(below(kLongWaitMax));
  }
  --depth_;
}

// Others act before the operation. If it has taken long, the process may not live on after it.
void Life::hold_up(Process& process, Moment moment) {
  const bool is_worst = is_unlucky_ && moment == Moment::kBeforeSync && below(2) == 0;
  const bool is_long = is_worst || below(4) == 0;
  ++depth_;
  if (is_worst) {
    act_until_told();
  } else {
    act(1 + below(is_long ? kLongWaitMax : 5));
  }
  --depth_;
  if (is_long && plan_.is_random && !is_calm_ && process.is_alive &&
      below(is_worst ? 3 : 10) == 0) {
    strike(process, below(2) == 0 ? Blow::kPower : static_cast<Blow>(below(3)));
  }
}

void Life::act_until_told() {
  const std::size_t before = told_.size();
  for (std::size_t i = 0; i < kActionsMax && told_.size() == before; ++i) act(1);
}

void Life::strike(Process& process, Blow blow) {
  story_ += fmt::format("event {}: blow {} on {:x}; ", events_ - 1, static_cast<int>(blow),
                        process.machine->digits);
  if (blow == Blow::kProcess) {
    process.is_alive = false;
  } else if (blow == Blow::kAllProcesses) {
    for (const auto& job : jobs_) job->kill(process.machine);
  } else {
    cut(*process.machine);
  }
}

void Life::cut(Machine& machine) {
  for (const auto& job : jobs_) job->lose(&machine);
  machine.disk->power_off();
  machine.is_off = true;
}

void Life::restore_power(Machine& machine) {
  auto images = machine.disk->crash_images(kImagesMax, random_());
  lost_.push_back(std::exchange(machine.disk, std::move(images[below(images.size())])));
  machine.is_off = false;
  story_ += fmt::format("{:x} is back ({}); ", machine.digits, machine.disk->label());
}

bool Life::act_once() {
  std::size_t choices = 0;
  for (const auto& job : jobs_) choices += job->choices();
  if (choices == 0) return false;
  std::size_t choice = below(choices);
  for (const auto& job : jobs_) {
    const std::size_t own = job->choices();
    if (choice < own) {
      job->act(choice);
      return true;
    }
    choice -= own;
  }
  return false;
}

void Life::act(std::size_t actions) {
  while (actions > 0 && act_once()) --actions;
}

// Four ranks at most on the machines that are there, in any order.
JobPlan Life::plan_job() {
  JobPlan plan{.run_id = run_id_, .nodes = {}, .saves = 1, .is_calm = is_calm_ || has_sound_jobs_};
  plan.mutant = plan_.mutant;
  plan.has_heirs = plan_.has_heirs;
  const bool is_first = jobs_.empty();
  for (const auto& machine : machines_) {
    const bool stays_away = !is_first && !is_calm_ && below(4) == 0;
    if (!machine->is_off && !stays_away) plan.nodes.push_back({machine.get(), {}});
  }
  if (plan.nodes.empty()) return plan;
  if (!is_first) std::ranges::shuffle(plan.nodes, random_);
  const std::size_t count = plan.nodes.size();
  const std::size_t world_size = std::max<std::size_t>(count, 3 + below(2));
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    plan.nodes[rank < count ? rank : below(count)].second.push_back(rank);
  }
  if (plan_.is_random) plan.saves = 1 + below(2);
  if (!is_calm_ && below(2) == 0) {
    plan.late_rank = static_cast<std::uint32_t>(below(2) == 0 ? 0 : below(world_size));
    plan.late_by = below(kLateByMax);
  }
  return plan;
}

void Life::begin_job() {
  for (const auto& machine : machines_) {
    if (machine->is_off && (is_calm_ || below(4) != 0)) restore_power(*machine);
    if (plan_.is_random && !is_calm_ && below(8) == 0) {
      machine->disk->fail_at(machine->disk->operation_count() + below(kOperationsMax), kEio);
    }
  }
  JobPlan plan = plan_job();
  if (plan.nodes.empty()) return;
  jobs_.push_back(std::make_unique<Job>(*this, std::move(plan), told_, attempts_));
  std::ignore = jobs_.back()->claim();
}

std::optional<std::string> Life::live() {
  const std::size_t jobs = plan_.is_random ? 1 + below(kJobsMax) : 1;
  for (std::size_t i = 0; i < jobs; ++i) {
    begin_job();
    act(plan_.is_random ? below(below(2) == 0 ? kFewActions : kActionsMax) : kActionsMax);
    if (below(3) == 0) {
      for (const auto& job : jobs_) job->kill();
      if (plan_.has_heirs && below(2) == 0) act(kActionsMax);
    }
  }
  if (plan_.has_heirs) act(below(kActionsMax));  // the heirs of the last jobs
  for (const auto& job : jobs_) job->lose();
  const bool all_lose_power = below(3) == 0;
  for (const auto& machine : machines_) {
    if (all_lose_power && !machine->is_off) cut(*machine);
    if (machine->is_off) {
      restore_power(*machine);
    } else {  // without armed faults
      lost_.push_back(std::exchange(machine->disk, machine->disk->clone()));
    }
  }
  if (auto broken = broken_promise(machines_, told_)) return broken;
  is_calm_ = true;
  const std::size_t events = events_;
  auto broken = live_calmly();
  events_ = events;
  return broken;
}

// The next job, with all machines and nothing that goes wrong.
std::optional<std::string> Life::live_calmly() {
  const std::size_t told_before = told_.size();
  jobs_.push_back(std::make_unique<Job>(*this, plan_job(), told_, attempts_));
  Job& job = *jobs_.back();
  const Status claimed = job.claim();
  if (!claimed) return "next: " + claimed.error().message();
  if (auto broken = undecided_after_claim(machines_)) return broken;
  if (auto broken = broken_promise(machines_, told_)) return broken;
  for (std::size_t i = 0; i < kCalmActionsMax && !job.is_over(); ++i) act(1);
  if (!job.is_over() || told_.size() == told_before) return "next: it can't save";
  return broken_promise(machines_, told_);
}

}  // namespace deepfreeze::nodes_test
