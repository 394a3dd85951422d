// Everything that copies: the arena, the threads that fill it, the one capture that may be under
// way, and its fences. Owned by the Checkpointer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "deepfreeze/options.h"
#include "device/cuda_device.h"
#include "save/capture_memory.h"
#include "save/copy_profile.h"
#include "save/live_capture.h"
#include "save/save_handle.h"
#include "save/save_plan.h"
#include "staging/background_copier.h"
#include "staging/copier_pool.h"
#include "staging/device_copier.h"

namespace deepfreeze {

// The bytes that a save has left in the arena, for the next one to compare with.
struct KeptImage {
  std::shared_ptr<const TablePlan> table;  // null: they are of no use
  std::shared_ptr<const std::vector<std::uint32_t>> block_crcs;
};

// Members are for the caller's thread unless they say "any thread".
class Capturer {
 public:
  // `write_engine` learns the arena's place; it must be destroyed before the capturer.
  Capturer(const Options& options, WriteEngine& write_engine, CudaDevices& devices);

  // Takes the arena, which one save has at a time. False if it was not free within `wait`.
  [[nodiscard]] bool take_arena(std::chrono::milliseconds wait);
  // Once nothing touches it any more. Any thread.
  void free_arena();
  // Called with the descriptor of each new arena that another process can map (options.agent),
  // before its first save; and before that with -1, when the old one goes. No save is under way.
  void on_new_arena(std::function<void(int fd)> call) { memory_.on_new_arena(std::move(call)); }
  [[nodiscard]] bool is_arena_shared() const { return memory_.shared_fd() >= 0; }
  // Gives threads and memory back for good. No save may be in flight.
  void give_back();
  // The arena holds that image, until the next prepare(). Before free_arena(), by any thread.
  void keep_image(KeptImage image) { kept_ = std::move(image); }
  // For the caller that took the arena and will not use it.
  void abandon();

  // Takes the guards off, as the profile says, if all tensors are to be copied at once. Not for a
  // capture that has begun early, nor in a ring, which would make save() wait for the disk.
  void choose_copy_time(SavePlan& plan);

  // Room for the plan's image, and the session that will fill it. The arena is taken.
  [[nodiscard]] Result<std::shared_ptr<LiveCapture>> prepare(const SavePlan& plan,
                                                             std::span<const DeviceStream> streams);
  // About so many bytes will be saved, some of them from these devices: has the room for them taken
  // in the background. It does nothing while a save has the arena. Any thread; take_arena() waits.
  void expect(std::uint64_t bytes, std::span<const std::int32_t> ordinals);
  // Ends that, for good. Any thread.
  void end_expecting();
  // Prepares room and threads for later saves; no source is read.
  [[nodiscard]] Status prewarm(const SavePlan& plan);
  [[nodiscard]] bool is_ring(const SavePlan& plan) const;  // more than options.arena_bytes_max
  // The image of the capture prepared last.
  [[nodiscard]] Image image(const SavePlan& plan) const;

  // Copies the unguarded tensors, and leaves the rest to the background and to fences. `handle`
  // learns how long fences took.
  void begin(const std::shared_ptr<LiveCapture>& capture,
             const std::shared_ptr<SaveHandle::State>& handle,
             std::span<const DeviceStream> streams);

  // Returns when all of the guard's tensors, or all tensors, are copied, or when `streams` wait for
  // that. Any thread.
  void fence(std::uint32_t guard, std::span<const DeviceStream> streams = {});
  void fence_all(std::span<const DeviceStream> streams = {});

  // Early capture: see Checkpointer::begin_capture().
  [[nodiscard]] Result<bool> begin_early(SavePlan plan);
  void release_early(std::uint32_t guard, std::span<const DeviceStream> streams);
  // The capture that has begun, with the unguarded sources of `plan`; null if it does not fit the
  // plan and is given up. Either way the arena stays taken.
  [[nodiscard]] std::shared_ptr<LiveCapture> take_early(const SavePlan& plan);
  [[nodiscard]] bool has_early() const { return early_.has_value(); }
  void discard_early();

 private:
  struct Current {
    std::shared_ptr<LiveCapture> capture;
    std::shared_ptr<SaveHandle::State> handle;  // null before its save()
  };
  struct Early {
    SavePlan plan;
    std::shared_ptr<LiveCapture> capture;
    std::set<std::uint32_t> guards;  // that tensors have
    std::set<std::uint32_t> held;    // and were not released yet
  };

  [[nodiscard]] Result<CaptureSpec> capture_spec(const SavePlan& plan);
  [[nodiscard]] std::uint64_t room_for(const SavePlan& plan) const;
  [[nodiscard]] std::uint64_t parking_bytes(const std::vector<CaptureItem>& items) const;
  [[nodiscard]] Status park(CaptureSpec& spec, std::span<const DeviceStream> streams);
  void start_background(const std::vector<CaptureItem>& items);
  [[nodiscard]] Result<CaptureDevices> devices_of(const std::vector<CaptureItem>& items);
  [[nodiscard]] Status start_device_copier();
  void set_current(const Current& current);
  [[nodiscard]] Current current();
  void copy_later(CaptureSession& session);
  void serve_devices(CaptureSession& session);

  [[nodiscard]] Status reserve(std::uint64_t bytes);

  CudaDevices& devices_;
  const std::optional<std::size_t> arena_bytes_max_;
  const bool paranoid_;
  const std::optional<std::uint64_t> reuse_bytes_min_;  // absent: each file is written anew
  CaptureMemory memory_;
  KeptImage kept_;  // of the thread that has the arena
  CopyProfile profile_;
  std::optional<Early> early_;

  std::mutex mutex_;  // guards the next five
  std::condition_variable freed_;
  bool arena_taken_ = false;
  bool is_expecting_ = false;  // expect() uses the memory
  bool expects_no_more_ = false;
  Current current_;

  std::unique_ptr<CopierPool> copiers_;
  std::unique_ptr<BackgroundCopier> background_;  // from its first use on
  std::unique_ptr<DeviceCopier> device_copier_;   // the same
};

// DEEPFREEZE_PARANOID is set, and not to 0.
[[nodiscard]] bool paranoid_by_environment();

}  // namespace deepfreeze
