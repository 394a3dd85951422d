// The probability that lost nodes lose a checkpoint that parity protects. Pure.
//
// A group of g nodes bears the loss of `parity` of them. Failures are independent of each other,
// which real ones are not: nodes that fail together, as those of a switch, must not be in one
// group, and a farther tier is for the rest.
#pragma once

#include <cstddef>
#include <span>

namespace deepfreeze {

// If losses come at once, any `lost` of all nodes with equal probability: 1 - w / C(N, lost),
// in which w counts the choices with at most `parity` nodes of each group: the coefficient of
// x^lost in the product over all groups of sum_{j <= parity} C(g, j) x^j. lost <= the number of
// nodes.
[[nodiscard]] double loss_of_many(std::span<const std::size_t> group_sizes, std::size_t parity,
                                  std::size_t lost);

// If each node is lost with probability `p`, independently of the others:
// 1 - prod over all groups of sum_{j <= parity} C(g, j) p^j (1 - p)^(g - j).
[[nodiscard]] double loss_of_each(std::span<const std::size_t> group_sizes, std::size_t parity,
                                  double p);

// Within `seconds`, if a lost node is rebuilt, or all is flushed to a farther tier, after
// `window_seconds`, and nodes fail at a constant rate, once in `mtbf_seconds` each: with the
// windows taken one after the other, 1 - (1 - P)^(seconds / window), P = loss_of_each(p) and p = 1
// - exp(-window / mtbf). Losses that fall into two windows are not counted: right if everything is
// flushed at fixed times. If each lost node is without protection for a window of its own, up to
// parity + 1 times as many checkpoints are lost: each of the parity + 1 losses may come first.
[[nodiscard]] double loss_over_time(std::span<const std::size_t> group_sizes, std::size_t parity,
                                    double mtbf_seconds, double window_seconds, double seconds);

// The time between checkpoints that wastes least, to first order: sqrt(2 x cost x MTBF). Young, "A
// First Order Approximation to the Optimum Checkpoint Interval", CACM 17(9), 1974.
[[nodiscard]] double best_interval(double cost_seconds, double mtbf_seconds);

}  // namespace deepfreeze
