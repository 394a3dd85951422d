// One save from its first slab to its commit. The caller's thread and the copiers announce
// slabs; run() belongs to the engine's worker.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "base/bounded_queue.h"
#include "engine/save_handle.h"
#include "engine/save_plan.h"
#include "format/records.h"
#include "pipeline/write_engine.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct SaveJobSettings {
  WriteEngine& write_engine;
  std::chrono::milliseconds commit_wait_max{0};
};

class SaveJob {
 public:
  // `image` is the data section in the arena; it stays untouched until `on_sealed` was called.
  SaveJob(Vfs& vfs, SavePlan plan, std::span<std::byte> image, SaveJobSettings settings,
          std::shared_ptr<SaveHandle::State> handle);

  [[nodiscard]] const std::vector<CaptureItem>& items() const { return plan_.items; }
  [[nodiscard]] std::uint64_t generation() const { return plan_.header.identity.generation; }

  // Any thread, once per slab; never blocks.
  void slab_ready(std::size_t slab_index);
  // After the last slab.
  void captured(std::span<const std::uint32_t> block_crcs);
  // In place of captured(): slabs are missing, so the part can't be finished.
  void capture_failed() { slabs_.close(); }

  // Writes, seals and commits; settles the handle. True where it committed. `on_sealed` is called
  // exactly once, when the arena is free again, whether the save went well or not.
  [[nodiscard]] bool run(const std::function<void()>& on_sealed);
  // Settles the handle of a job whose run() threw.
  void settle_failed(Error error) { handle_->fail(std::move(error)); }

 private:
  [[nodiscard]] Status write_and_seal();
  [[nodiscard]] Status write_part();
  [[nodiscard]] Result<std::vector<std::byte>> final_header() const;
  [[nodiscard]] AttemptName attempt() const;
  void give_up(const Error& error);
  void remove_if_aborted();

  Vfs& vfs_;
  SavePlan plan_;  // block_crcs: written by captured(), read after slabs_ is closed
  const std::span<std::byte> image_;
  const SaveJobSettings settings_;
  const std::shared_ptr<SaveHandle::State> handle_;  // also held by the caller's handles
  BoundedQueue<std::size_t> slabs_;
};

}  // namespace deepfreeze
