// deepfreeze.json, and what to do without it. Stateless; any thread.
#pragma once

#include <optional>

#include "manifest/run_records.h"

namespace deepfreeze {

[[nodiscard]] Result<RunRecord> read_run_file(Vfs& vfs);

// From the run id that most verified manifests name, else most claims. Pure.
[[nodiscard]] std::optional<RunRecord> rebuild_run(const RunRecords& records);

}  // namespace deepfreeze
