// One CUDA device: its primary context, our own streams for copies, events and pinned memory. Any
// thread; no call waits for more than it says. A graph that somebody captures meanwhile neither
// forbids a call nor is broken by it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "deepfreeze/device.h"
#include "device/cuda_driver.h"

namespace deepfreeze {

class CudaDevice;

// From a device's memory into the host's, as many bytes.
struct HostCopy {
  std::span<const std::byte> from;
  std::span<std::byte> into;
};

// A point in a stream. Belongs to a device, which it keeps open.
class CudaEvent {
 public:
  CudaEvent() = default;
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();

  // Blocks this thread until the stream has reached the event.
  [[nodiscard]] Status wait() const;

 private:
  friend class CudaDevice;
  CudaEvent(std::shared_ptr<const CudaDevice> device, cuda::Event event)
      : device_(std::move(device)), event_(event) {}
  std::shared_ptr<const CudaDevice> device_;
  cuda::Event event_ = nullptr;
};

// Host memory that devices access directly, until this object is gone. It does not own the memory,
// which must outlive it; no copy may be under way at the end.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  // Unpins, as the destructor does, but reports errors. On an error the memory must not be
  // replaced: the driver would mistake new memory at these addresses for the old.
  [[nodiscard]] Status unpin();

 private:
  friend class CudaDevice;
  PinnedMemory(std::shared_ptr<const CudaDevice> device, std::span<std::byte> bytes)
      : device_(std::move(device)), bytes_(bytes) {}
  std::shared_ptr<const CudaDevice> device_;
  std::span<std::byte> bytes_;
};

class CudaDevice : public std::enable_shared_from_this<CudaDevice> {
  struct Private {};  // only open() makes one

 public:
  // kUnsupported without a driver, kInvalidArgument without such a device.
  [[nodiscard]] static Result<std::shared_ptr<CudaDevice>> open(std::int32_t ordinal);
  CudaDevice(Private, const cuda::Driver& driver, std::int32_t ordinal)
      : driver_(driver), ordinal_(ordinal) {}
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] std::int32_t ordinal() const { return ordinal_; }

  // Our streams, each in its own order. A stream holds about a thousand copies and events; the
  // thread that adds more then waits for the oldest.
  static constexpr std::size_t kLanes = 4;

  // Orders later work of our streams after the work given to `theirs` so far. kUnsupported while
  // `theirs` is captured into a graph: no order with it is allowed then.
  [[nodiscard]] Status follow(std::uintptr_t theirs);
  // Orders later work of `theirs` after `event`.
  [[nodiscard]] Status hold_back(std::uintptr_t theirs, const CudaEvent& event);
  [[nodiscard]] Result<bool> is_captured(std::uintptr_t theirs) const;
  // Blocks this thread until that stream has done the work given to it so far.
  [[nodiscard]] Status wait_for(std::uintptr_t theirs) const;
  // Blocks this thread until all our streams have done theirs.
  [[nodiscard]] Status wait() const;

  // Queues a copy on that lane. Returns before the bytes have arrived.
  [[nodiscard]] Status copy_to_host(std::span<const std::byte> from, std::span<std::byte> into,
                                    std::size_t lane = 0);
  [[nodiscard]] Status copy_to_device(std::span<const std::byte> from, std::span<std::byte> into);
  // Queues copies on that lane, and an event behind them. After an error some may be under way.
  [[nodiscard]] Result<CudaEvent> copy_to_host(std::span<const HostCopy> copies, std::size_t lane);

  [[nodiscard]] Result<PinnedMemory> pin(std::span<std::byte> memory);

 private:
  friend class CudaEvent;
  friend class PinnedMemory;
  class Current;
  [[nodiscard]] Status start();
  // These two in the device's context.
  [[nodiscard]] Result<bool> is_in_graph(cuda::Stream stream) const;
  [[nodiscard]] Result<CudaEvent> mark(cuda::Stream stream);
  // `call` returns a code of the driver; `what` names the failed operation for the message.
  template <class Call>
  [[nodiscard]] Status in_context(std::string_view what, const Call& call) const;
  [[nodiscard]] Status check(cuda::Code code, std::string_view call) const;

  const cuda::Driver& driver_;
  const std::int32_t ordinal_;
  cuda::DeviceId device_ = 0;
  cuda::Context context_ = nullptr;
  std::array<cuda::Stream, kLanes> streams_{};
};

// The devices that an engine has used so far; opened at the first use, each once.
class CudaDevices {
 public:
  [[nodiscard]] Result<std::shared_ptr<CudaDevice>> get(std::int32_t ordinal);
  // Gives back the devices that nothing uses any more.
  void close();

 private:
  std::mutex mutex_;  // guards the next
  std::map<std::int32_t, std::shared_ptr<CudaDevice>> open_;
};

}  // namespace deepfreeze
