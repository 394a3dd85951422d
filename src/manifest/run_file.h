// deepfreeze.json, and how a run does without it. Stateless; any thread.
#pragma once

#include <optional>

#include "manifest/run_records.h"

namespace deepfreeze {

[[nodiscard]] Result<RunRecord> read_run_file(Vfs& vfs);

// From the run id that most verified manifests name, else most claims. Pure.
[[nodiscard]] std::optional<RunRecord> rebuild_run(const RunRecords& records);

// Writes `rebuilt`, which a listing made from the other records, if the run's file is missing or
// does not verify; never starts a new run. A bad file is kept as deepfreeze.bad-<nonce>.json.
// Returns the record that stands, which another process may have written. If the file merely cannot
// be read it may be whole: then it stays, and the error says so.
[[nodiscard]] Result<RunRecord> repair_run_file(Vfs& vfs, const RunRecord& rebuilt);

}  // namespace deepfreeze
