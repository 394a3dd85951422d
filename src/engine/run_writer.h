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
  [[nodiscard]] static Result<RunWriter> open(Vfs& vfs, std::optional<ParentPoint> parent,
                                              Keep keep = {});

  [[nodiscard]] const RunRecord& record() const { return record_; }

  // From which point the next save goes on; without a call, from scratch. A process that has
  // saved since its last claim claims anew, also for the same point: what it saved meanwhile is
  // then abandoned, as after any rollback.
  void continue_from(const Point& point);

  // True where the save of `step` needs a new claim. Saves in flight must be over before it:
  // the claim would fence them.
  [[nodiscard]] bool must_claim(std::uint64_t step) const;

  // Claims a generation where the first save would; else nothing.
  [[nodiscard]] Status prepare();

  // Of the newest save that is known of, of any line: the next one has a greater one.
  [[nodiscard]] std::uint64_t save_index() const { return save_index_; }

  // The identity of the next save. Claims a generation first where must_claim() says so: before
  // the first save, after continue_from(), and where the step went back without it (the new line
  // then goes on from the newest step). kFenced where another process has taken the run over.
  [[nodiscard]] Result<Identity> next_identity(std::uint64_t step);

 private:
  RunWriter(Vfs& vfs, RunRecord record, std::uint64_t save_index, Keep keep)
      : vfs_(&vfs), record_(std::move(record)), keep_(std::move(keep)), save_index_(save_index) {}

  [[nodiscard]] Status claim(const std::optional<Point>& resumed_from);
  void remove_aborted() const;

  Vfs* vfs_;
  RunRecord record_;
  Keep keep_;                       // recorded by each claim
  std::uint64_t save_index_;        // of the newest save
  std::optional<Point> stands_at_;  // what was issued or continued from last; none yet
  std::optional<GenerationRecord> claimed_;
  bool claim_due_ = true;    // before the next save
  bool has_issued_ = false;  // since the last claim
};

}  // namespace deepfreeze
