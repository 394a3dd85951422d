// The memory that captures fill: the arena, and the parking place beside a ring. Takes it, and has
// it registered with the engine that writes and with devices. Owned by the Capturer; members are
// for the thread that has the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "arena/arena.h"
#include "device/cuda_device.h"
#include "device/device_capture.h"
#include "pipeline/write_engine.h"

namespace deepfreeze {

class CaptureMemory {
 public:
  // `write_engine` learns the arena's place; it must be destroyed before this.
  CaptureMemory(Arena::Kind kind, WriteEngine& write_engine)
      : write_engine_(write_engine), arena_(kind) {}
  CaptureMemory(const CaptureMemory&) = delete;
  CaptureMemory& operator=(const CaptureMemory&) = delete;
  ~CaptureMemory() { settle(); }

  // See Capturer::on_new_arena().
  void on_new_arena(std::function<void(int fd)> call) { on_new_arena_ = std::move(call); }

  // Has a thread of its own do what reserve() and pin() will ask for, unless it does or did
  // already; false then. Else nothing may use the arena, nor ask for its place, until one of the
  // next three is called. A refusal is left to reserve().
  bool expect(std::uint64_t bytes, CaptureDevices devices);
  // The arena has `bytes` at least; see Arena::reserve().
  [[nodiscard]] Status reserve(std::uint64_t bytes);
  // Stops the thread of expect(); the memory that it has taken stays.
  void settle();
  // Gives the memory back, for good.
  void give_back();

  [[nodiscard]] Status reserve_parking(std::uint64_t bytes);
  // Once, and again if the memory has grown. A refusal only makes copies slower.
  void pin(const CaptureDevices& devices);

  [[nodiscard]] std::span<std::byte> arena() const { return arena_.bytes(); }
  [[nodiscard]] std::span<std::byte> parking() const { return parking_.bytes(); }
  [[nodiscard]] int shared_fd() const { return arena_.shared_fd(); }

 private:
  [[nodiscard]] Status forget_place();
  void take(const std::stop_token& stop, std::uint64_t bytes, const CaptureDevices& devices);

  WriteEngine& write_engine_;
  std::function<void(int fd)> on_new_arena_;
  bool is_told_ = true;         // of the arena that there is
  std::uint64_t expected_ = 0;  // the most so far
  Arena arena_;
  Arena parking_;  // ring mode: the unguarded tensors
  // Pin the two arenas for devices; destroyed before them.
  PinnedMemory pinned_arena_;
  PinnedMemory pinned_parking_;
  bool can_pin_ = true;  // not refused yet
  std::jthread taker_;   // of expect(); uses all above
};

}  // namespace deepfreeze
