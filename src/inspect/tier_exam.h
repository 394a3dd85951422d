// The complaints about a farther tier of a run: can it be used, how far is it behind, are its
// copies whole. Read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inspect/doctor_exam.h"

namespace deepfreeze {

// A place that somebody calls a tier of the run.
struct TierPlace {
  std::string path;
  Result<std::unique_ptr<Vfs>> vfs;
  std::optional<std::uint64_t> free_bytes = {};  // absent: not known
};
[[nodiscard]] TierPlace open_tier_place(const std::string& path);

struct CheckpointsCount {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
};

struct TierState {
  std::string path;
  std::optional<std::uint64_t> free_bytes = {};
  std::optional<std::uint64_t> newest_step = {};  // committed there
  CheckpointsCount behind = {};                   // of nearer tiers, newer than it
  CheckpointsCount absent = {};  // of nearer tiers, all; the tier's rules may leave some out
  std::vector<Complaint> complaints = {};  // their places begin with the tier's path
  std::optional<RunListing> listing = {};  // of this run; absent: it has nothing of it
};

// `nearer` are the listings of the run's own directory and of the tiers before this one.
[[nodiscard]] TierState examine_tier(const OpenedRun& run, const std::vector<RunListing>& nearer,
                                     TierPlace place, const ExamSettings& settings,
                                     const Watch& watch);

}  // namespace deepfreeze
