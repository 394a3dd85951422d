#include "device/cuda_device.h"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "base/try.h"

namespace deepfreeze {
namespace {

// The operations that more than one function names in its errors.
constexpr std::string_view kEnter = "use the device";
constexpr std::string_view kOrder = "order a stream";
constexpr std::string_view kCopyToHost = "copy to the host";

cuda::Stream stream_of(std::uintptr_t handle) { return reinterpret_cast<cuda::Stream>(handle); }
std::uintptr_t handle_of(cuda::Stream stream) { return reinterpret_cast<std::uintptr_t>(stream); }

cuda::DevicePointer pointer_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<cuda::DevicePointer>(bytes.data());
}

}  // namespace

// Makes the device's context this thread's until the end of the scope. Calls in the scope are not
// recorded into a graph that some thread is capturing: our waits and pins are no part of it.
class CudaDevice::Current {
 public:
  explicit Current(const CudaDevice& device)
      : driver_(device.driver_), pushed_(driver_.context_push(device.context_)) {
    if (pushed_ == cuda::kSuccess) relaxed_ = driver_.thread_exchange_capture_mode(&mode_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    if (pushed_ != cuda::kSuccess) return;
    if (relaxed_ == cuda::kSuccess) driver_.thread_exchange_capture_mode(&mode_);
    cuda::Context popped = nullptr;
    driver_.context_pop(&popped);
  }
  [[nodiscard]] cuda::Code code() const { return pushed_ != cuda::kSuccess ? pushed_ : relaxed_; }

 private:
  const cuda::Driver& driver_;
  const cuda::Code pushed_;
  cuda::Code relaxed_ = cuda::kSuccess;
  int mode_ = cuda::kCaptureModeRelaxed;  // then the thread's own, until the end
};

// Without its context the thread's may be another device's, whose streams have the same names.
template <class Call>
Status CudaDevice::in_context(std::string_view what, const Call& call) const {
  const Current current(*this);
  DF_TRY_VOID(check(current.code(), kEnter));
  return check(call(), what);
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept
    : device_(std::move(other.device_)), event_(std::exchange(other.event_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  return *this;
}

// Errors mean that the device, or the process, is at its end.
CudaEvent::~CudaEvent() {
  if (event_ == nullptr) return;
  const CudaDevice::Current current(*device_);
  device_->driver_.event_destroy(event_);
}

Status CudaEvent::wait() const {
  return device_->in_context("wait for a copy",
                             [&] { return device_->driver_.event_synchronize(event_); });
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : device_(std::move(other.device_)), bytes_(std::exchange(other.bytes_, {})) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// Errors mean the same as for an event.
PinnedMemory::~PinnedMemory() {
  if (bytes_.empty()) return;
  const CudaDevice::Current current(*device_);
  device_->driver_.host_unregister(bytes_.data());
}

Status PinnedMemory::unpin() {
  if (bytes_.empty()) return {};
  DF_TRY_VOID(device_->in_context("give pinned memory back",
                                  [&] { return device_->driver_.host_unregister(bytes_.data()); }));
  bytes_ = {};
  return {};
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(std::int32_t ordinal) {
  DF_TRY(const cuda::Driver* driver, cuda::driver());
  auto device = std::make_shared<CudaDevice>(Private{}, *driver, ordinal);
  DF_TRY_VOID(device->start());
  return device;
}

Status CudaDevice::start() {
  DF_TRY_VOID(check(driver_.device_get(&device_, ordinal_), "open the device"));
  cuda::Context context = nullptr;
  DF_TRY_VOID(check(driver_.primary_context_retain(&context, device_), "open the device"));
  context_ = context;
  const Current current(*this);
  DF_TRY_VOID(check(current.code(), kEnter));
  int least = 0;  // the lowest priority: training goes first
  int greatest = 0;
  DF_TRY_VOID(check(driver_.stream_priority_range(&least, &greatest), "make a stream"));
  for (cuda::Stream& stream : streams_) {
    DF_TRY_VOID(
        check(driver_.stream_create(&stream, cuda::kStreamNonBlocking, least), "make a stream"));
  }
  return {};
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    for (const cuda::Stream stream : streams_) {
      if (stream != nullptr) driver_.stream_destroy(stream);
    }
  }
  driver_.primary_context_release(device_);
}

Status CudaDevice::check(cuda::Code code, std::string_view call) const {
  if (code == cuda::kSuccess) [[likely]]
    return {};
  const Status failed = cuda::check(driver_, code, call);
  return std::unexpected(failed.error().within(fmt::format("CUDA device {}", ordinal_)));
}

Result<bool> CudaDevice::is_in_graph(cuda::Stream stream) const {
  int status = cuda::kCaptureStatusNone;
  DF_TRY_VOID(check(driver_.stream_is_capturing(stream, &status), "ask a stream"));
  return status != cuda::kCaptureStatusNone;
}

Result<bool> CudaDevice::is_captured(std::uintptr_t theirs) const {
  const Current current(*this);
  DF_TRY_VOID(check(current.code(), kEnter));
  return is_in_graph(stream_of(theirs));
}

Status CudaDevice::follow(std::uintptr_t theirs) {
  const Current current(*this);
  DF_TRY_VOID(check(current.code(), kEnter));
  DF_TRY(const bool is_graphs, is_in_graph(stream_of(theirs)));
  if (is_graphs) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("CUDA device {}: the stream is being captured into a graph; save "
                            "outside of it",
                            ordinal_));
  }
  DF_TRY(const CudaEvent reached, mark(stream_of(theirs)));
  for (const cuda::Stream ours : streams_) {
    DF_TRY_VOID(check(driver_.stream_wait_event(ours, reached.event_, 0), kOrder));
  }
  return {};
}

Status CudaDevice::hold_back(std::uintptr_t theirs, const CudaEvent& event) {
  return in_context(kOrder,
                    [&] { return driver_.stream_wait_event(stream_of(theirs), event.event_, 0); });
}

Status CudaDevice::wait_for(std::uintptr_t theirs) const {
  return in_context("wait for a stream",
                    [&] { return driver_.stream_synchronize(stream_of(theirs)); });
}

Status CudaDevice::wait() const {
  Status all;
  for (const cuda::Stream ours : streams_) {  // all, whatever one says: memory depends on it
    const Status one = wait_for(handle_of(ours));
    if (all) all = one;
  }
  return all;
}

Status CudaDevice::copy_to_host(std::span<const std::byte> from, std::span<std::byte> into,
                                std::size_t lane) {
  return in_context(kCopyToHost, [&] {
    return driver_.copy_to_host(into.data(), pointer_of(from), from.size(), streams_[lane]);
  });
}

Status CudaDevice::copy_to_device(std::span<const std::byte> from, std::span<std::byte> into) {
  return in_context("copy to the device", [&] {
    return driver_.copy_to_device(pointer_of(into), from.data(), from.size(), streams_[0]);
  });
}

// Enters the context once for all of them: entering it takes as many calls as four copies.
Result<CudaEvent> CudaDevice::copy_to_host(std::span<const HostCopy> copies, std::size_t lane) {
  const Current current(*this);
  DF_TRY_VOID(check(current.code(), kEnter));
  for (const HostCopy& copy : copies) {
    DF_TRY_VOID(check(driver_.copy_to_host(copy.into.data(), pointer_of(copy.from),
                                           copy.from.size(), streams_[lane]),
                      kCopyToHost));
  }
  return mark(streams_[lane]);
}

Result<CudaEvent> CudaDevice::mark(cuda::Stream stream) {
  constexpr unsigned kFlags = cuda::kEventBlockingSync | cuda::kEventDisableTiming;
  cuda::Event event = nullptr;
  DF_TRY_VOID(check(driver_.event_create(&event, kFlags), "make an event"));
  CudaEvent made(shared_from_this(), event);
  DF_TRY_VOID(check(driver_.event_record(event, stream), "record an event"));
  return made;
}

Result<PinnedMemory> CudaDevice::pin(std::span<std::byte> memory) {
  DF_TRY_VOID(in_context(fmt::format("pin {} bytes", memory.size()), [&] {
    return driver_.host_register(memory.data(), memory.size(), cuda::kHostRegisterPortable);
  }));
  return PinnedMemory(shared_from_this(), memory);
}

Result<std::shared_ptr<CudaDevice>> CudaDevices::get(std::int32_t ordinal) {
  const std::lock_guard lock(mutex_);
  const auto known = open_.find(ordinal);
  if (known != open_.end()) return known->second;
  DF_TRY(std::shared_ptr<CudaDevice> opened, CudaDevice::open(ordinal));
  open_.emplace(ordinal, opened);
  return opened;
}

void CudaDevices::close() {
  const std::lock_guard lock(mutex_);
  open_.clear();
}

Status check_devices() {
  const auto driver = cuda::driver();
  if (driver) return {};
  return std::unexpected(driver.error());
}

}  // namespace deepfreeze
