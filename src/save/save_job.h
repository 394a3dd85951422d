// One save from its first slab to its commit. The caller's thread and the copiers fill the
// capture; write() and settle() belong to the engine's worker.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/records.h"
#include "manifest/commit.h"
#include "pipeline/part_writer.h"
#include "pipeline/write_engine.h"
#include "save/audit_scan.h"
#include "save/capturer.h"
#include "save/cold_part.h"
#include "save/commit_with_nodes.h"
#include "save/handover.h"
#include "save/live_capture.h"
#include "save/range_scan.h"
#include "save/reuse.h"
#include "save/save_handle.h"
#include "save/save_plan.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct SaveJobSettings {
  WriteEngine& write_engine;
  std::chrono::milliseconds commit_wait_max{0};
  bool confirm = false;  // the caller compares before the save counts as captured
  // By it another process can finish the save, once it is captured, if this one ends; null: none
  // can. For a save whose image lies in memory as a whole.
  Handover* handover = nullptr;
  // The knowledge of the engine's saves so far; null: each is written whole.
  Reuse* reuse = nullptr;
  // Empty if all ranks see one directory; and for ranks that wait for their node's leader.
  CommitNode commit_node = {};
};

class SaveJob final : public CaptureOwner, public UnconfirmedSave {
 public:
  // `image` stays untouched by others until write() has returned.
  SaveJob(Vfs& vfs, SavePlan plan, const Image& image, SaveJobSettings settings,
          std::shared_ptr<LiveCapture> capture, std::shared_ptr<SaveHandle::State> handle);

  [[nodiscard]] AttemptName attempt() const;
  [[nodiscard]] std::uint64_t generation() const { return plan_.identity.generation; }
  [[nodiscard]] const std::shared_ptr<SaveHandle::State>& handle() const { return handle_; }

  // Once all is copied: it is captured, or waits for its caller's confirmation or, with an agent,
  // for its checksums. Any thread.
  void copied() override;
  void checksummed() override;
  [[nodiscard]] bool awaits_confirmation() const { return settings_.confirm; }

  // Call once all is copied and compared: `torn` are the keys that the caller's own check found,
  // to which the capture's are added. If there is one, the save fails with kTornCapture. Any
  // thread; only the first call counts.
  void captured(std::vector<std::string> torn) override;
  // Call in place of captured() if the part can't be finished.
  void capture_failed(const Error& error) override;
  // Cancels the capture: its caller let it go unconfirmed.
  void abandoned() override;

  // Writes and seals this rank's part. When it returns, well or not, the arena is free again.
  [[nodiscard]] Status write();
  // The contents of the arena once write() has returned, also if it failed.
  [[nodiscard]] KeptImage kept_image();
  // Commits the written files, or gives them up; settles the handle. True if it committed.
  [[nodiscard]] bool settle(const Status& written);
  // Settles the handle of a job whose write() or settle() threw.
  void settle_failed(Error error);

 private:
  void hand_over();
  void hand_on_captured();
  [[nodiscard]] bool is_finishable() const;
  void end_handover();
  [[nodiscard]] Status write_and_seal();
  [[nodiscard]] Status write_part();
  [[nodiscard]] PartSpec part_spec();
  [[nodiscard]] Status push_slabs(PartWriter& writer);
  [[nodiscard]] bool is_cold(std::size_t slab) const;
  void note_changes();
  [[nodiscard]] bool is_cold_part_same() const;
  [[nodiscard]] Status bring_cold_files();
  void count_non_finite();
  [[nodiscard]] Status commit();
  [[nodiscard]] Result<Manifest> await_commit();
  void report_to_nodes(const Error& error);
  [[nodiscard]] Result<std::vector<std::byte>> final_header(std::size_t file);
  [[nodiscard]] std::vector<OwnPart> own_parts() const;
  [[nodiscard]] bool is_alone() const { return plan_.identity.part.world_size == 1; }
  void end_capture();
  void give_up(const Error& error);
  [[nodiscard]] bool withdraw_part(const Error& error);
  void remove_if_aborted();
  [[nodiscard]] bool end_attempt(const Error& error);

  Vfs& vfs_;
  const SavePlan plan_;
  const Image image_;
  const SaveJobSettings settings_;
  const std::shared_ptr<LiveCapture> capture_;
  const std::shared_ptr<SaveHandle::State> handle_;  // also held by the caller's handles

  std::optional<RangeScan> scan_;  // present if statistics are wanted
  AuditScan audit_;
  std::optional<ColdPart> cold_;            // files that are linked or written apart
  bool has_joined_ = false;                 // the attempt's directory, by the worker
  bool is_committing_ = false;              // the same
  std::vector<std::uint32_t> header_crcs_;  // by file, each from final_header() on
  std::vector<std::uint64_t> non_finite_;   // the same, of values
  std::vector<std::uint32_t> block_crcs_;   // written by checksummed(), read behind it

  std::mutex mutex_;  // guards the next four
  bool is_decided_ = false;
  bool is_checksummed_ = false;
  bool is_handed_over_ = false;
  std::optional<Error> capture_error_;

  std::mutex handover_mutex_;  // guards the next, and calls of the handover by several threads
  bool ends_handover_ = false;
};

}  // namespace deepfreeze
