// The right to write a run: its record, our generation, and the point from which we go on.
// Owned by the Checkpointer, used by its caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/random_id.h"
#include "manifest/claims.h"
#include "storage/vfs.h"

namespace deepfreeze {

class RunWriter {
 public:
  // Waits until no save is in flight. Called before a claim, which would fence one, and before
  // the run's directory is opened again.
  using Settle = std::function<void()>;

  [[nodiscard]] static Result<RunWriter> open(Vfs& vfs, std::optional<ParentPoint> parent,
                                              Keep keep = {});
  // For restoring only: the run must be there, and nothing is written.
  [[nodiscard]] static Result<RunWriter> open_to_read(Vfs& vfs);

  [[nodiscard]] const RunRecord& record() const { return record_; }

  // The run that all ranks know. Rank 0 may have made another since, of which the others learn only
  // with the next verdict.
  [[nodiscard]] const std::string& agreed_run_id() const { return agreed_run_id_; }
  void agree(const std::string& run_id) { agreed_run_id_ = run_id; }

  // Sets the point that the next save continues from. Without a call it is the point that another
  // writer of this process restored (restored_points.h); without that the save starts from scratch.
  // A process that has saved since its last claim claims anew, also for the same point: the saves
  // in between are then abandoned, as after any rollback.
  void continue_from(const Point& point);

  // True if the save of `step` needs a new claim.
  [[nodiscard]] bool must_claim(std::uint64_t step) const;

  // Claims a generation if the first save would. Does nothing if the run's directory is gone: the
  // next save deals with that.
  [[nodiscard]] Status prepare(const Settle& settle = [] {});

  // Opens the directory at the run's path again if it is another one now. Call it before a listing.
  [[nodiscard]] Status find_directory();

  // Called in a new, empty directory of a run that was deleted, before the run is made again: it
  // may bring the records that other places have.
  void make_again_from(std::function<Status()> adopt) { adopt_ = std::move(adopt); }

  // For ranks that don't commit: the run that rank 0 saves into may have been made again.
  [[nodiscard]] Status follow(const std::string& run_id, const Settle& settle = [] {});

  // The index of the newest known save of any line: the next one has a greater index.
  [[nodiscard]] std::uint64_t save_index() const { return save_index_; }

  // The identity of the next save. Claims a generation first if must_claim() says so: before the
  // first save, after continue_from(), and if the step went back without it (the new line then
  // continues from the newest step). A run that was deleted is made again, as a new one, and
  // claimed. kFenced if another process has taken the run over, or another run is there: from then
  // on always, until continue_from().
  [[nodiscard]] Result<Identity> next_identity(std::uint64_t step, const Settle& settle = [] {});

  // For a run on several nodes (docs/decisions/0026), whose ranks claim together: the claims name
  // the directory that decides, by its digits.
  void decides_as(std::uint64_t node) { node_ = node; }
  // As next_identity(), but nothing if a claim is due: then begin_claim() here, the rounds of the
  // nodes, end_claim() here, and once more. kIo: the directory was deleted or replaced.
  [[nodiscard]] Result<std::optional<Identity>> identity_if_claimed(std::uint64_t step);
  // Claims a generation in this directory, durably: one above `others`, which are the highest
  // generation and save of any node.
  struct Highest {
    std::uint64_t generation = 0;
    std::uint64_t save_index = 0;
  };
  [[nodiscard]] Result<GenerationRecord> begin_claim(std::uint64_t step, const Highest& others);
  // Aborts the attempts that earlier processes left undecided here. The claim holds from here on.
  [[nodiscard]] Status end_claim(GenerationRecord claimed);
  // The claim was not made on all nodes. If it is fenced, this process stays so, as after
  // next_identity().
  void note_failed_claim(const Error& error);

 private:
  RunWriter(Vfs& vfs, RunRecord record, std::uint64_t save_index, Keep keep)
      : vfs_(&vfs),
        record_(std::move(record)),
        agreed_run_id_(record_.run_id),
        keep_(std::move(keep)),
        save_index_(save_index) {}

  [[nodiscard]] Result<Identity> make_identity(std::uint64_t step, const Settle& settle);
  [[nodiscard]] Identity issue(std::uint64_t step);
  [[nodiscard]] Result<std::optional<Identity>> issue_if_claimed(std::uint64_t step);
  [[nodiscard]] Status claim(std::uint64_t step);
  [[nodiscard]] Status check_right(const RunListing& listing);
  [[nodiscard]] Status follow_once(const std::string& run_id);
  [[nodiscard]] std::optional<Point> start_in(const RunListing& listing, std::uint64_t step) const;
  [[nodiscard]] Result<ClaimView> look();
  [[nodiscard]] Status open_again();
  [[nodiscard]] Status go_on_in(const RunListing& listing);
  [[nodiscard]] Status make_again();
  void remove_aborted() const;

  Vfs* vfs_;
  RunRecord record_;
  std::string agreed_run_id_;
  std::uint64_t claimant_ = random_id();  // in all claims of this process
  // The highest generation that existed when this process last had a right to the run: a higher one
  // of another process has taken it over. If empty, this process may follow any generation, as
  // after opening or restoring the run.
  std::optional<std::uint64_t> known_;
  std::optional<Error> fenced_;
  std::function<Status()> adopt_ = [] { return Status{}; };
  Keep keep_;                          // recorded by each claim
  std::optional<std::uint64_t> node_;  // the same
  std::uint64_t save_index_;           // of the newest save
  std::optional<Point> stands_at_;     // the point issued or continued from last, if any
  std::optional<GenerationRecord> claimed_;
  bool claim_due_ = true;      // before the next save
  bool has_issued_ = false;    // since the last claim
  bool is_elsewhere_ = false;  // the directory was opened again, and may hold another run
};

}  // namespace deepfreeze
