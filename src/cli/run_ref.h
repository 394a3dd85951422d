// RUN, RUN@STEP, RUN@latest and RUN@best: from an argument to an opened run or checkpoint.
// Read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "restore/opened_run.h"
#include "restore/snapshot.h"

namespace deepfreeze {

struct RunRef {
  std::string path;
  std::optional<std::uint64_t> step;  // empty: the newest
  std::optional<BestBy> best = {};    // or the best
  bool at = false;                    // a checkpoint was named, if only by "latest"
};

// An existing directory is taken whole, '@' or not. kInvalidArgument for anything else after '@'.
[[nodiscard]] Result<RunRef> parse_run_ref(const std::string& text);

// For verbs that take a whole run: kInvalidArgument if `text` names a checkpoint.
[[nodiscard]] Result<std::string> whole_run_path(const std::string& text);
[[nodiscard]] Result<OpenedRun> open_whole_run(const std::string& text);

// The newest committed checkpoint, the newest of that step, or the best.
[[nodiscard]] Result<Manifest> choose(const OpenedRun& run, const RunRef& ref);

struct OpenedCheckpoint {
  OpenedRun run;
  std::shared_ptr<const Snapshot> snapshot;  // borrows run.vfs
};

[[nodiscard]] Result<OpenedCheckpoint> open_checkpoint(const std::string& text);

}  // namespace deepfreeze
