#include "save/capture_memory.h"

#include <exception>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/trace.h"
#include "base/try.h"

namespace deepfreeze {

bool CaptureMemory::expect(std::uint64_t bytes, CaptureDevices devices) {
  if (bytes <= expected_) return false;
  settle();
  expected_ = bytes;
  if (bytes <= arena_.bytes().size() || !forget_place()) return false;
  try {
    taker_ = std::jthread([this, bytes, devices = std::move(devices)](const std::stop_token& stop) {
      // Not at a lower priority: training's mmap() waits for the lock that this holds.
      enter_own_thread("df-memory");
      take(stop, bytes, devices);
    });
  } catch (const std::exception&) {  // no thread, or no memory for one: reserve() takes the room
  }
  return true;
}

void CaptureMemory::take(const std::stop_token& stop, std::uint64_t bytes,
                         const CaptureDevices& devices) {
  const trace::Span span("take memory");
  try {
    if (!arena_.reserve(bytes, stop) || stop.stop_requested()) return;
    write_engine_.use_memory(arena_.bytes());
    pin(devices);
  } catch (const std::exception&) {  // the same: reserve() and pin() try again, and tell
  }
}

void CaptureMemory::settle() {
  if (!taker_.joinable()) return;
  taker_.request_stop();
  taker_.join();
}

// No save uses the arena, so nothing is in flight; and no page may be registered when it goes.
Status CaptureMemory::forget_place() {
  write_engine_.use_memory({});
  DF_TRY_VOID(pinned_arena_.unpin());
  if (on_new_arena_) on_new_arena_(-1);  // first, so that nobody keeps the old one
  is_told_ = false;
  return {};
}

Status CaptureMemory::reserve(std::uint64_t bytes) {
  settle();
  if (bytes > arena_.bytes().size()) DF_TRY_VOID(forget_place());
  DF_TRY_VOID(arena_.reserve(bytes));
  if (!std::exchange(is_told_, true) && on_new_arena_) on_new_arena_(arena_.shared_fd());
  write_engine_.use_memory(arena_.bytes());
  return {};
}

void CaptureMemory::give_back() {
  settle();
  write_engine_.use_memory({});
  pinned_arena_ = {};
  pinned_parking_ = {};
  arena_ = Arena();
  parking_ = Arena();
}

Status CaptureMemory::reserve_parking(std::uint64_t bytes) {
  if (bytes > parking_.bytes().size()) DF_TRY_VOID(pinned_parking_.unpin());
  return parking_.reserve(bytes);
}

void CaptureMemory::pin(const CaptureDevices& devices) {
  const auto pin_one = [&](const Arena& arena, PinnedMemory& pinned) {
    if (!can_pin_ || arena.bytes().empty() || !pinned.bytes().empty()) return;
    auto now = devices.begin()->second->pin(arena.bytes());
    can_pin_ = now.has_value();
    if (now) {
      pinned = *std::move(now);
    } else {
      log_warning("copies from the device are slower: " + now.error().message());
    }
  };
  if (devices.empty()) return;
  pin_one(arena_, pinned_arena_);
  pin_one(parking_, pinned_parking_);
}

}  // namespace deepfreeze
