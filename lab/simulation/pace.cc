#include "pace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include "ledger.h"

namespace deepfreeze::simulation {
namespace {

// splitmix64: the same on every platform, unlike the distributions of <random>.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

double uniform(std::uint64_t value) {  // in (0, 1)
  return (static_cast<double>(mixed(value) >> 11) + 0.5) * 0x1p-53;
}

double normal(std::uint64_t value) {  // Box and Muller
  return std::sqrt(-2 * std::log(uniform(value))) *
         std::cos(2 * std::numbers::pi * uniform(mixed(value)));
}

double trees_seconds(const Scenario& scenario) {
  const auto depth = static_cast<double>(std::bit_width(scenario.ranks() - 1));
  return 2 * depth * scenario.machine.network.latency_seconds;
}

double ring_seconds(const Scenario& scenario) {
  const auto ranks = static_cast<double>(scenario.ranks());
  const auto bytes = static_cast<double>(scenario.workload.gradient_bytes);
  return 2 * (ranks - 1) / ranks * bytes / scenario.machine.network.bandwidth;
}

}  // namespace

Pace::Pace(const Scenario& scenario)
    : window_seconds_(scenario.workload.window_seconds),
      jitter_(scenario.workload.jitter),
      seed_(scenario.workload.seed),
      update_seconds_(scenario.workload.step_seconds - scenario.workload.window_seconds),
      agreement_seconds_(trees_seconds(scenario)),
      collective_seconds_(trees_seconds(scenario) + ring_seconds(scenario)) {
  for (std::uint64_t step = 0; step < scenario.steps(); ++step) {
    std::vector<double> windows;
    for (std::uint64_t rank = 0; rank < scenario.ranks(); ++rank) {
      windows.push_back(window_seconds(rank, step));
    }
    slowest_.push_back(std::ranges::max(windows));
    stragglers_.push_back(slowest_.back() - median(std::move(windows)));
  }
}

double Pace::straggler_seconds(std::uint64_t first_step, std::uint64_t end) const {
  const auto from = stragglers_.begin();
  return *std::max_element(from + static_cast<std::ptrdiff_t>(first_step),
                           from + static_cast<std::ptrdiff_t>(end));
}

double Pace::window_seconds(std::uint64_t rank, std::uint64_t step) const {
  if (jitter_ == 0) return window_seconds_;
  return window_seconds_ * std::exp(jitter_ * normal(mixed(mixed(mixed(seed_) + rank) + step)));
}

double Pace::training_seconds() const {
  double total = 0;
  for (const double slowest : slowest_) total += slowest + collective_seconds_ + update_seconds_;
  return total;
}

}  // namespace deepfreeze::simulation
