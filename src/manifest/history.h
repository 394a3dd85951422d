// The order of a run's checkpoints, and which of them the current line passed through. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

// Greatest (generation, step, save_index) is newest; the attempt id only makes the order total.
[[nodiscard]] bool older(const Point& a, const Point& b);

// Committed attempts, newest first.
[[nodiscard]] std::vector<Manifest> newest_first(const RunListing& listing);

// Highest generation claimed or committed; 0 in a new run.
[[nodiscard]] std::uint64_t highest_generation(const RunListing& listing);

// The rules that the latest claim records. Empty if they are not known: there is no claim, or its
// record cannot be read.
[[nodiscard]] std::optional<Keep> recorded_keep(const RunListing& listing);

// The points on the newest generation's chain of resumed-from points; all others are *abandoned*. A
// claim whose record is lost passes through everything older.
class CurrentLine {
 public:
  explicit CurrentLine(const RunListing& listing);
  [[nodiscard]] bool contains(const Point& point) const;
  // False below a claim whose record is lost: nobody knows whether the line passed through it.
  [[nodiscard]] bool knows(const Point& point) const;
  // Whether the point belongs to an earlier line, beside which this one began without continuing
  // it.
  [[nodiscard]] bool is_earlier(const Point& point) const;

 private:
  // For each generation, the last point that the line passed through; empty if it passed through
  // all.
  std::map<std::uint64_t, std::optional<Point>> segments_;
  std::uint64_t everything_below_ = 0;  // generations below it are on the line, as a whole
  std::uint64_t begins_at_ = 0;         // the generation that was resumed from nothing
};

[[nodiscard]] bool on_current_line(const RunListing& listing, const Point& point);

}  // namespace deepfreeze
