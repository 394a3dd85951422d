// A run of a few checkpoints whose every byte is known, and a reader's findings about it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"

namespace deepfreeze {

inline constexpr std::uint64_t kStoredSteps = 3;

// Saves steps 1 to kStoredSteps there, by so many ranks: each writes a file of its own.
[[nodiscard]] Status store_run(const std::filesystem::path& run, std::uint32_t ranks);

// The findings of one look at all checkpoints of a run.
struct Reading {
  std::string wrong;                  // empty: nothing was given out that had not been saved
  std::vector<std::uint64_t> good;    // steps that were read in full
  std::vector<std::uint64_t> faulty;  // steps that were listed, and named as bad
};
// Lists, opens, reads and checks all; `changed_step` is the one whose files are not as they were,
// which the full check must find.
[[nodiscard]] Reading read_run_through(const std::filesystem::path& run,
                                       std::optional<std::uint64_t> changed_step);

// Restores and continues in a new process; returns the error, empty if all is right.
[[nodiscard]] std::string go_on_from(const std::filesystem::path& run);

}  // namespace deepfreeze
