// Many runs at a glance: the facts about each that a list of them shows. Runs are read as they are;
// an index in each run's directory only makes that faster (run_index.h). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepfreeze/options.h"
#include "format/tag_record.h"
#include "manifest/run_directory.h"

namespace deepfreeze {

// A committed checkpoint.
struct CataloguedStep {
  std::uint64_t step = 0;
  std::int64_t wall_micros = 0;
  std::uint64_t bytes = 0;         // of all its files
  std::uint64_t shared_bytes = 0;  // of those that were written for other checkpoints
  bool abandoned = false;
  std::map<std::string, double> metrics;
  Tags tags;  // of the save, and those that were given later
};

struct CataloguedRun {
  std::string run_id;
  std::optional<ParentPoint> parent;
  std::vector<CataloguedStep> steps;  // newest first
  std::optional<std::size_t> best;    // place in `steps`, by the run's own rule
  std::int64_t claimed_micros = 0;    // of the newest claim; 0: none can be read
  std::size_t faults = 0;  // records that do not verify: of the run, attempts, claims, tags
};

[[nodiscard]] CataloguedRun catalogued(const RunListing& listing);

[[nodiscard]] std::uint64_t bytes_of(const CataloguedRun& run);
[[nodiscard]] std::uint64_t shared_bytes_of(const CataloguedRun& run);

// A run counts as active if it was claimed, or saved a checkpoint, within an hour. Nobody can know
// more from its files.
inline constexpr std::int64_t kActiveMicros = std::int64_t{3600} * 1'000'000;
[[nodiscard]] bool is_active(const CataloguedRun& run, std::int64_t now_micros);

enum class UseIndex : std::uint8_t { kYes, kNo };  // kNo: it is neither read nor written

struct CatalogueRow {
  std::filesystem::path path;
  Result<CataloguedRun> run = CataloguedRun{};  // the error says why it can't be read
};
// The directory itself if it is a run, and all runs below it, in the order of find_runs(). A
// directory that can't be looked into has a row with the error, since runs may lie below. Errors:
// those of find_runs(), and kNoSpace if memory is short; of a row, too.
[[nodiscard]] Result<std::vector<CatalogueRow>> read_catalogue(const std::filesystem::path& tree,
                                                               UseIndex use);

}  // namespace deepfreeze
