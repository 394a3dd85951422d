#include "protect/loss_odds.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace deepfreeze {
namespace {

double log_choose(std::size_t n, std::size_t k) {
  const auto log_factorial = [](std::size_t m) { return std::lgamma(static_cast<double>(m) + 1); };
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
}

// That more than `parity` of `size` nodes are lost, each with probability p.
double loss_of_group(std::size_t size, std::size_t parity, double p) {
  if (p <= 0) return 0;
  if (p >= 1) return size > parity ? 1 : 0;
  double sum = 0;
  for (std::size_t j = parity + 1; j <= size; ++j) {
    sum += std::exp(log_choose(size, j) + static_cast<double>(j) * std::log(p) +
                    static_cast<double>(size - j) * std::log1p(-p));
  }
  return std::min(sum, 1.0);
}

// 1 - (1 - p)^times, exact also for a tiny p.
double at_least_once(double p, double times) {
  return p >= 1 ? 1 : -std::expm1(times * std::log1p(-p));
}

}  // namespace

double loss_of_many(std::span<const std::size_t> group_sizes, std::size_t parity,
                    std::size_t lost) {
  if (lost <= parity) return 0;
  std::vector<double> ways(lost + 1);  // by the number of lost nodes
  ways[0] = 1;
  std::size_t nodes = 0;
  for (const std::size_t size : group_sizes) {
    nodes += size;
    std::vector<double> next(lost + 1);
    for (std::size_t j = 0; j <= std::min({parity, size, lost}); ++j) {
      const double choices = std::exp(log_choose(size, j));
      for (std::size_t before = 0; before + j <= lost; ++before) {
        next[before + j] += choices * ways[before];
      }
    }
    ways = std::move(next);
  }
  return std::clamp(1 - ways[lost] / std::exp(log_choose(nodes, lost)), 0.0, 1.0);
}

double loss_of_each(std::span<const std::size_t> group_sizes, std::size_t parity, double p) {
  double log_kept = 0;
  for (const std::size_t size : group_sizes) {
    const double loss = loss_of_group(size, parity, p);
    if (loss >= 1) return 1;
    log_kept += std::log1p(-loss);
  }
  return -std::expm1(log_kept);
}

double loss_over_time(std::span<const std::size_t> group_sizes, std::size_t parity,
                      double mtbf_seconds, double window_seconds, double seconds) {
  const double p = -std::expm1(-window_seconds / mtbf_seconds);
  return at_least_once(loss_of_each(group_sizes, parity, p), seconds / window_seconds);
}

double best_interval(double cost_seconds, double mtbf_seconds) {
  return std::sqrt(2 * cost_seconds * mtbf_seconds);
}

}  // namespace deepfreeze
