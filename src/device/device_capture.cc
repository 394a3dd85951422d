#include "device/device_capture.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "base/try.h"

namespace deepfreeze {
namespace {

bool is_named(std::int32_t device, std::span<const DeviceStream> streams) {
  return std::ranges::find(streams, device, &DeviceStream::device) != streams.end();
}

std::uint64_t bytes_of(const DeviceBatch& batch) {
  std::uint64_t bytes = 0;
  for (const CapturePiece& part : batch.parts) bytes += part.bytes;
  return bytes;
}

// An error's text may find no memory; this one's needs none.
template <class Call>
Status without_throwing(const Call& call) {
  try {
    return call();
  } catch (const std::exception&) {
    return std::unexpected(Error(ErrorCode::kNoSpace, "out of memory"));
  }
}

}  // namespace

Status follow(const CaptureDevices& devices, std::span<const DeviceStream> streams) {
  for (const auto& [ordinal, device] : devices) {
    if (!is_named(ordinal, streams)) DF_TRY_VOID(device->follow(0));
  }
  for (const DeviceStream& each : streams) {
    const auto device = devices.find(each.device);
    if (device != devices.end()) DF_TRY_VOID(device->second->follow(each.stream));
  }
  return {};
}

DeviceCapture::DeviceCapture(std::span<const CaptureItem> items, Image image,
                             std::uint32_t group_count, const CaptureDevices& devices,
                             DeviceCaptureCalls calls)
    : items_(items),
      image_(std::move(image)),
      devices_(devices),
      calls_(std::move(calls)),
      plan_(plan_batches(items, image_, group_count)),
      batches_(plan_.batches.size()),
      released_(group_count),
      to_land_(plan_.batches.size()),
      to_hand_on_(plan_.batches.size()) {
  for (Line* line : {&queue_, &in_flight_, &landed_}) line->all.reserve(batches_.size());
}

void DeviceCapture::release(std::uint32_t group) {
  const std::lock_guard lock(mutex_);
  released_[group] = true;
  const bool all = std::ranges::all_of(released_, [](bool is_released) { return is_released; });
  if (is_stopped_ || (image_.is_ring() && !all)) return;
  for (const std::size_t index : plan_.of_group[image_.is_ring() ? 0 : group]) {
    if (batches_[index].phase != Phase::kNotReleased) continue;
    batches_[index].phase = Phase::kQueued;
    queue_.all.push_back(index);
  }
}

void DeviceCapture::enqueue() { enqueue_at_most(batch_count()); }

void DeviceCapture::enqueue(std::uint32_t group) {
  if (!image_.is_ring()) enqueue_at_most(plan_.of_group[group].size());
}

void DeviceCapture::enqueue_at_most(std::uint64_t batches) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_enqueuing_, true)) return;
  }
  std::uint64_t done = 0;
  while (const auto index = next_to_enqueue(done++ == batches)) enqueue_batch(*index);
}

// Under the lock that release() takes, so that nothing is left behind when this ends.
std::optional<std::size_t> DeviceCapture::next_to_enqueue(bool is_enough) {
  const std::lock_guard lock(mutex_);
  if (queue_.is_empty() || is_enough) {
    is_enqueuing_ = false;
    return std::nullopt;
  }
  const std::size_t index = queue_.take();
  batches_[index].phase = Phase::kUnderWay;
  return index;
}

void DeviceCapture::enqueue_batch(std::size_t index) {
  const DeviceBatch& batch = plan_.batches[index];
  if (image_.is_ring() && !calls_.wait_for_place(batch.slab)) return skip(index);
  CudaEvent copied;
  const Status enqueued = without_throwing([&] { return copy(batch, copied); });
  if (!enqueued) {
    // Some copies may be under way: the image must not be reused before they are over.
    std::ignore = without_throwing([&] { return devices_.at(batch.device)->wait(); });
    fail_with(enqueued.error());
    return skip(index);
  }
  const std::lock_guard lock(mutex_);
  batches_[index].copied = std::move(copied);
  batches_[index].phase = Phase::kEnqueued;
  in_flight_.all.push_back(index);
  changed_.notify_all();
}

Status DeviceCapture::copy(const DeviceBatch& batch, CudaEvent& copied) {
  copies_.clear();
  for (const CapturePiece& part : batch.parts) {
    const CaptureItem& item = items_[part.item];
    copies_.push_back({.from = item.source.subspan(part.offset - item.offset, part.bytes),
                       .into = image_.at(part.offset, part.bytes)});
  }
  DF_TRY(copied, devices_.at(batch.device)->copy_to_host(copies_, batch.lane));
  return {};
}

void DeviceCapture::skip(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    batches_[index].phase = Phase::kLanded;
    --to_land_;
    --to_hand_on_;
    changed_.notify_all();
  }
  calls_.over(1);
}

// Batches in flight come first: a thread that waits for the last of them must not wait for
// checksums.
std::optional<DeviceCapture::Arrival> DeviceCapture::next_arrival(bool wait) {
  std::unique_lock lock(mutex_);
  const auto can_await = [this] { return !is_awaiting_ && !in_flight_.is_empty(); };
  if (wait) {
    changed_.wait(lock, [&] { return can_await() || !landed_.is_empty() || to_hand_on_ == 0; });
  }
  if (can_await()) {
    is_awaiting_ = true;
    return Arrival{.batch = in_flight_.take(), .is_awaited = true};
  }
  if (landed_.is_empty()) return std::nullopt;
  const std::size_t index = landed_.take();
  if (--to_hand_on_ == 0) changed_.notify_all();
  return Arrival{.batch = index};
}

bool DeviceCapture::arrive(bool wait) {
  const auto next = next_arrival(wait);
  if (!next) return false;
  next->is_awaited ? await_landing(next->batch) : hand_on(next->batch);
  return true;
}

void DeviceCapture::await_landing(std::size_t index) {
  const Status landed = without_throwing([&] { return batches_[index].copied.wait(); });
  if (!landed) {  // as after a failed copy
    std::ignore =
        without_throwing([&] { return devices_.at(plan_.batches[index].device)->wait(); });
    fail_with(landed.error());
  }
  bool is_wanted = false;
  {
    const std::lock_guard lock(mutex_);
    batches_[index].phase = Phase::kLanded;  // before the call, for which no fence should wait
    --to_land_;
    changed_.notify_all();
    is_wanted = !is_stopped_;
  }
  if (is_wanted) calls_.landed(bytes_of(plan_.batches[index]));
  const std::lock_guard lock(mutex_);
  landed_.all.push_back(index);
  is_awaiting_ = false;
  changed_.notify_all();
}

void DeviceCapture::hand_on(std::size_t index) {
  bool is_wanted = false;
  {
    const std::lock_guard lock(mutex_);
    is_wanted = !is_stopped_;
  }
  if (is_wanted) std::ranges::for_each(plan_.batches[index].parts, calls_.arrived);
  calls_.over(1);
}

bool DeviceCapture::was_fenced() {
  const std::lock_guard lock(mutex_);
  return was_fenced_;
}

void DeviceCapture::fence(std::uint32_t group, std::span<const DeviceStream> streams) {
  {
    const std::lock_guard lock(mutex_);
    if (released_[group] && !plan_.last[group].empty()) was_fenced_ = true;
  }
  for (const auto& [place, last] : plan_.last[group]) fence(place.first, last, streams);
}

void DeviceCapture::fence(std::int32_t device, std::size_t last,
                          std::span<const DeviceStream> streams) {
  std::unique_lock lock(mutex_);
  const Phase& phase = batches_[last].phase;
  if (phase == Phase::kNotReleased) return;
  changed_.wait(lock, [&] { return phase >= Phase::kEnqueued; });
  if (phase == Phase::kLanded) return;
  lock.unlock();
  if (hold_back(device, last, streams)) return;
  lock.lock();
  changed_.wait(lock, [&] { return phase == Phase::kLanded; });
}

// Returns false if the caller has to wait. A stream that is being captured into a graph must not be
// given work from outside of it.
bool DeviceCapture::hold_back(std::int32_t ordinal, std::size_t last,
                              std::span<const DeviceStream> streams) {
  CudaDevice& device = *devices_.at(ordinal);
  bool is_held_back = false;
  for (const DeviceStream& each : streams) {
    if (each.device != ordinal) continue;
    const auto is_captured = device.is_captured(each.stream);
    if (!is_captured || *is_captured) return false;
    if (!device.hold_back(each.stream, batches_[last].copied)) return false;
    is_held_back = true;
  }
  return is_held_back;
}

void DeviceCapture::fail_with(const Error& error) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (to_land_ == 0) return;
    is_first = !std::exchange(has_failed_, true);
  }
  stop();
  if (is_first) calls_.failed(error);
}

void DeviceCapture::cancel() { stop(); }

// Work that is being given to a device right now goes on.
void DeviceCapture::stop() {
  std::uint64_t skipped = 0;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    for (State& batch : batches_) {
      if (batch.phase >= Phase::kUnderWay) continue;
      batch.phase = Phase::kLanded;
      ++skipped;
    }
    queue_.taken = queue_.all.size();
    to_land_ -= skipped;
    to_hand_on_ -= skipped;
    changed_.notify_all();
  }
  if (skipped > 0) calls_.over(skipped);
}

}  // namespace deepfreeze
