// The origin of a run, and how its generations follow from each other. Read-only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

inline constexpr std::size_t kParentsMax = 64;  // runs that are followed

// A run that another one branched from.
struct ParentEntry {
  ParentPoint point;
  std::string run_id;  // empty if it can't be opened
  std::string cause;   // why the chain ends here; empty if it goes on or ends well
};

struct StepEntry {
  Point point;
  bool abandoned = false;
};

struct GenerationEntry {
  std::uint64_t generation = 0;
  bool claim_readable = false;  // false: lost or damaged, so its origin is not known
  std::optional<Point> resumed_from;
  std::vector<StepEntry> steps;  // committed ones, oldest first
  // The indentation: the line that leads to the newest generation is at 0, and so is every
  // generation that starts anew; one that was left for another continuation is one deeper.
  std::size_t depth = 0;
};

// Nearest first, as far as they can be opened.
[[nodiscard]] std::vector<ParentEntry> parents_of(const RunListing& listing);

// In the order in which a tree of them is drawn: each after the one it resumed from.
[[nodiscard]] std::vector<GenerationEntry> generations_of(const RunListing& listing);

}  // namespace deepfreeze
