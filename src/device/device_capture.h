// The part of a capture that is on devices. Each device's own stream does the copies, after the
// work that the training's stream had at the release; a fence makes the training's stream wait for
// them, and not the caller. Other threads hand on the bytes that have arrived.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda_device.h"
#include "device/device_batches.h"

namespace deepfreeze {

// All devices that a plan has items on, by ordinal.
using CaptureDevices = std::map<std::int32_t, std::shared_ptr<CudaDevice>>;

// Orders later work of these devices' own streams after the work given to `streams` so far. A
// device with no stream here follows its default stream.
[[nodiscard]] Status follow(const CaptureDevices& devices, std::span<const DeviceStream> streams);

// The functions that it calls, from any of its threads. None may wait for the capture.
struct DeviceCaptureCalls {
  std::function<bool(std::uint64_t slab)> wait_for_place;  // in a ring; false: copy nothing
  std::function<void(std::uint64_t bytes)> landed;         // a batch is in the image
  std::function<void(const CapturePiece& part)> arrived;   // one part of it; the batch has landed
  std::function<void(std::uint64_t count)> over;           // batches that touch nothing any more
  std::function<void(const Error& error)> failed;          // once; nothing more is copied
};

// Any thread, unless a member says otherwise.
class DeviceCapture {
 public:
  // Items and devices must outlive it.
  DeviceCapture(std::span<const CaptureItem> items, Image image, std::uint32_t group_count,
                const CaptureDevices& devices, DeviceCaptureCalls calls);

  [[nodiscard]] std::uint64_t batch_count() const { return plan_.batches.size(); }

  // In a ring nothing is copied before all groups are released.
  void release(std::uint32_t group);
  // Ends the capture as if a copy had failed, unless all have landed: nothing is left to fail then.
  void fail_with(const Error& error);

  // Gives the released batches to the devices. Waits for places in a ring, but never for copies.
  // One thread at a time: a second caller returns and leaves the work to the first.
  void enqueue();
  // Gives at most as many batches as the group has, from the group released first. Does nothing in
  // a ring, in which a place may have to be waited for.
  void enqueue(std::uint32_t group);
  // Does one step: waits for the oldest batch in flight, if no thread does, or else hands on one
  // that has landed. False if there will be no more; without `wait` also if there is none yet.
  bool arrive(bool wait);

  // Orders later work of the streams after the group's copies. The caller waits itself if a stream
  // can't be made to wait, or for a device with no stream here. Returns at once if the group was
  // not released.
  void fence(std::uint32_t group, std::span<const DeviceStream> streams);
  // Whether any fence did so: its sources may have changed since.
  [[nodiscard]] bool was_fenced();

  // Gives nothing more to the devices. Copies already given to them still arrive.
  void cancel();

 private:
  // In this order. A batch that is skipped goes to kLanded, from any phase before kEnqueued.
  enum class Phase : std::uint8_t { kNotReleased, kQueued, kUnderWay, kEnqueued, kLanded };
  struct State {
    Phase phase = Phase::kNotReleased;
    CudaEvent copied;  // from kEnqueued on, and then nobody changes it
  };

  void enqueue_at_most(std::uint64_t batches);
  [[nodiscard]] std::optional<std::size_t> next_to_enqueue(bool is_enough);
  void enqueue_batch(std::size_t index);
  [[nodiscard]] Status copy(const DeviceBatch& batch, CudaEvent& copied);
  void skip(std::size_t index);
  void stop();
  // The next work of a thread that serves the device, and the batch that it is for.
  struct Arrival {
    std::size_t batch = 0;
    bool is_awaited = false;  // until it has landed; else it is handed on
  };
  [[nodiscard]] std::optional<Arrival> next_arrival(bool wait);
  void await_landing(std::size_t index);
  void hand_on(std::size_t index);
  void fence(std::int32_t device, std::size_t last, std::span<const DeviceStream> streams);
  [[nodiscard]] bool hold_back(std::int32_t device, std::size_t last,
                               std::span<const DeviceStream> streams);

  const std::span<const CaptureItem> items_;
  const Image image_;
  const CaptureDevices& devices_;
  const DeviceCaptureCalls calls_;
  const DevicePlan plan_;
  std::vector<HostCopy> copies_;  // of one batch; by the one thread that gives it to its device

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<State> batches_;
  std::vector<bool> released_;  // by group
  // Batches in the order in which they came, each once, and how many of them are taken. All room is
  // allocated at the start, because threads that must not throw add to them.
  struct Line {
    std::vector<std::size_t> all;
    std::size_t taken = 0;
    [[nodiscard]] bool is_empty() const { return taken == all.size(); }
    [[nodiscard]] std::size_t take() { return all[taken++]; }
  };
  Line queue_;
  Line in_flight_;
  Line landed_;
  std::uint64_t to_land_ = 0;     // batches, neither skipped nor landed
  std::uint64_t to_hand_on_ = 0;  // batches, neither skipped nor taken to be handed on
  bool is_enqueuing_ = false;
  bool is_awaiting_ = false;  // a thread waits for a batch in flight
  bool was_fenced_ = false;
  bool is_stopped_ = false;
  bool has_failed_ = false;
};

}  // namespace deepfreeze
