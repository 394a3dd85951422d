// One save whose image is live memory, from its first slab to its commit.
//
// Shared by the trainer's thread, which waits for the memory, and the worker, which runs it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "engine/save_plan.h"
#include "manifest/commit.h"
#include "pipeline/write_engine.h"
#include "slab_checksums.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct SaveOutcome {
  bool is_committed = false;
  std::string error;           // empty: none
  double durable_seconds = 0;  // from the call of save(); 0 until committed
};

class LiveSave {
 public:
  // `image` must not change before wait_for_memory() has returned.
  LiveSave(SavePlan plan, const Image& image, Monotonic::time_point began);

  [[nodiscard]] std::uint64_t step() const { return plan_.identity.step; }
  [[nodiscard]] std::shared_ptr<SlabChecksums> checksums() const { return checksums_; }

  // Returns when every slab is written to the file, or the save has failed: the kernel reads no
  // byte of the image any more. All checksums must have been finished, or will be by others.
  void wait_for_memory();
  [[nodiscard]] bool is_memory_free();

  // By the worker: writes, seals and commits.
  void run(Vfs& vfs, WriteEngine& write_engine);
  [[nodiscard]] SaveOutcome outcome();

 private:
  using SlabQueue = BoundedQueue<std::size_t>;

  [[nodiscard]] Status write_and_seal(Vfs& vfs, WriteEngine& write_engine);
  [[nodiscard]] Status write_part(Vfs& vfs, WriteEngine& write_engine);
  [[nodiscard]] Result<std::vector<std::byte>> final_header();
  [[nodiscard]] Status commit(Vfs& vfs);
  [[nodiscard]] AttemptName attempt() const;
  void slab_released();
  void free_memory();
  void settle(const Status& committed);

  const SavePlan plan_;
  const Image image_;
  const Monotonic::time_point began_;
  const std::shared_ptr<SlabQueue> slabs_;          // checksummed; also held by who checksums
  const std::shared_ptr<SlabChecksums> checksums_;  // also held by threads that help
  std::uint32_t header_crc_ = 0;                    // the worker's

  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::size_t slabs_unwritten_;
  SaveOutcome outcome_;
};

}  // namespace deepfreeze
