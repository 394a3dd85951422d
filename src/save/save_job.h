// One save from its first slab to its commit. The caller's thread and the copiers fill the
// capture; run() belongs to the engine's worker.
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
#include "save/live_capture.h"
#include "save/range_scan.h"
#include "save/save_handle.h"
#include "save/save_plan.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct SaveJobSettings {
  WriteEngine& write_engine;
  std::chrono::milliseconds commit_wait_max{0};
  bool confirm = false;  // the caller compares before the save counts as captured
};

class SaveJob : public std::enable_shared_from_this<SaveJob> {
 public:
  // `image` stays untouched by others until `on_sealed` was called.
  SaveJob(Vfs& vfs, SavePlan plan, const Image& image, SaveJobSettings settings,
          std::shared_ptr<LiveCapture> capture, std::shared_ptr<SaveHandle::State> handle);

  [[nodiscard]] std::uint64_t generation() const { return plan_.identity.generation; }
  [[nodiscard]] const std::shared_ptr<SaveHandle::State>& handle() const { return handle_; }

  // Once all is copied: it is captured, or waits for its caller's confirmation. Any thread.
  void copied();
  [[nodiscard]] bool awaits_confirmation() const { return settings_.confirm; }

  // Call once all is copied and compared: `torn` are the keys that the caller's own witness found,
  // to which the capture's are added. If there is one, the save fails with kTornCapture. Any
  // thread; only the first call counts.
  void captured(std::vector<std::string> torn);
  // Call in place of captured() if the part can't be finished.
  void capture_failed(const Error& error);

  // Writes, seals and commits; settles the handle. True if it committed. `on_sealed` is called
  // exactly once, when the arena is free again, whether the save went well or not.
  [[nodiscard]] bool run(const std::function<void()>& on_sealed);
  // Settles the handle of a job whose run() threw.
  void settle_failed(Error error);

 private:
  [[nodiscard]] Status write_and_seal();
  [[nodiscard]] Status write_part();
  [[nodiscard]] PartPlan part_plan();
  [[nodiscard]] Status push_slabs(PartWriter& writer);
  [[nodiscard]] Status commit();
  [[nodiscard]] Result<std::vector<std::byte>> final_header(std::size_t file);
  [[nodiscard]] std::span<const std::uint32_t> block_crcs_of(std::size_t file) const;
  [[nodiscard]] std::vector<PartName> part_names() const;
  [[nodiscard]] std::vector<OwnPart> own_parts() const;
  [[nodiscard]] AttemptName attempt() const;
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
  bool has_joined_ = false;                 // the attempt's directory, by the worker
  bool is_committing_ = false;              // the same
  std::vector<std::uint32_t> header_crcs_;  // by file, each from final_header() on
  std::vector<std::uint64_t> non_finite_;   // the same, of values
  std::vector<std::uint32_t> block_crcs_;   // written by captured(), read after the slabs' end

  std::mutex mutex_;  // guards the next two
  bool settled_ = false;
  std::optional<Error> capture_error_;
};

}  // namespace deepfreeze
