// The right to write a run: its record, our generation, and the point from which we go on.
// Owned by the Checkpointer, used by its caller's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "manifest/run_directory.h"
#include "storage/vfs.h"

namespace deepfreeze {

class RunWriter {
 public:
  [[nodiscard]] static Result<RunWriter> open(Vfs& vfs, std::optional<ParentPoint> parent);

  [[nodiscard]] const RunRecord& record() const { return record_; }

  // The run as it stands, after attempts that a dead predecessor left undecided were aborted.
  // Where that is impossible (a read-only disk) they are left, with a warning.
  [[nodiscard]] Result<RunListing> decide();

  // From which point the next save goes on; without a call, from scratch.
  void continue_from(const Point& point) { resumed_from_ = point; }

  // The identity of the next save. Claims a generation before the first one, and whenever the
  // point to go on from is not the one claimed. kIo, kNoSpace: nothing was claimed.
  [[nodiscard]] Result<Identity> next_identity(std::uint64_t step);

 private:
  RunWriter(Vfs& vfs, RunRecord record, std::uint64_t save_index)
      : vfs_(&vfs), record_(std::move(record)), save_index_(save_index) {}

  [[nodiscard]] Status claim();
  [[nodiscard]] Status claim_and_abort(const RunListing& listing);

  Vfs* vfs_;
  RunRecord record_;
  std::uint64_t save_index_;  // of the newest save
  std::optional<Point> resumed_from_;
  std::optional<GenerationRecord> claimed_;
};

}  // namespace deepfreeze
