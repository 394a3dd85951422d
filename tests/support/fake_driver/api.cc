// The functions by their names, as the product finds them.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "device/cuda_driver.h"
#include "support/fake_driver/driver.h"

namespace deepfreeze::fake_driver {
namespace {

// The product's own types: UBSan compares the type of a function pointer with that of the function.
using cuda::Context;
using cuda::DevicePointer;
using cuda::Event;
using cuda::Stream;

Range range_of(std::uintptr_t at, std::size_t bytes) {
  return {reinterpret_cast<const std::byte*>(at), bytes};
}
Range range_of(const void* at, std::size_t bytes) {
  return {static_cast<const std::byte*>(at), bytes};
}

// A wait of the host: without the lock, and at once if the device is dead.
int wait_for(FakeStream& stream) {
  stream.finish();
  return driver().dead;
}

std::shared_ptr<FakeEvent> find_event(Event handle) {
  const auto found = driver().events.find(handle);
  return found == driver().events.end() ? nullptr : found->second;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  const std::lock_guard lock(driver().mutex);
  const int code = driver().enter("cuInit");
  if (code == 0) driver().is_initialized = true;
  return code;
}

int cuGetErrorString(int code, const char** text) {
  *text = code == kOutOfMemory ? "out of memory" : "a failure on demand";
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter("cuDeviceGet")) return code;
  if (ordinal < 0 || ordinal >= kDevices) return kInvalidDevice;
  *device = 10 + ordinal;  // a handle is no ordinal
  return 0;
}

int cuDevicePrimaryCtxRetain(Context* context, int device) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter("cuDevicePrimaryCtxRetain")) return code;
  FakeContext& found = driver().contexts.at(static_cast<std::size_t>(device - 10));
  ++found.references;
  *context = reinterpret_cast<Context>(&found);
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter("cuDevicePrimaryCtxRelease_v2")) return code;
  --driver().contexts.at(static_cast<std::size_t>(device - 10)).references;
  return 0;
}

int cuCtxPushCurrent_v2(Context context) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter("cuCtxPushCurrent_v2")) return code;
  context_stack().push_back(reinterpret_cast<FakeContext*>(context));
  return 0;
}

int cuCtxPopCurrent_v2(Context* context) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuCtxPopCurrent_v2")) return code;
  *context = reinterpret_cast<Context>(context_stack().back());
  context_stack().pop_back();
  return 0;
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuCtxGetStreamPriorityRange")) return code;
  *least = 0;
  *greatest = -5;
  return 0;
}

int cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  if (const int code = own.enter_with_context("cuStreamCreateWithPriority")) return code;
  if (priority != 0) own.violate("a stream that is not of the lowest priority");
  Delays delays = own.delays;
  delays.seed += own.next_number++;
  own.streams.push_back(std::make_unique<FakeStream>(context_stack().back()->ordinal, flags == 0,
                                                     own.holds_new_streams, delays));
  *stream = reinterpret_cast<Stream>(own.streams.back().get());
  return 0;
}

int cuStreamDestroy_v2(Stream stream) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuStreamDestroy_v2")) return code;
  const FakeStream* known = driver().find(stream);
  if (known == nullptr) return kInvalidHandle;
  auto& all = driver().streams;
  const auto found = std::ranges::find(all, known, &std::unique_ptr<FakeStream>::get);
  driver().destroyed.push_back(std::move(*found));  // it still does the work given to it
  all.erase(found);
  return 0;
}

int cuStreamSynchronize(Stream stream) {
  FakeStream* found = nullptr;
  {
    const std::lock_guard lock(driver().mutex);
    if (const int code = driver().enter_unsafe("cuStreamSynchronize")) return code;
    found = driver().find(stream);
  }
  return found == nullptr ? kInvalidHandle : wait_for(*found);
}

int cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuStreamWaitEvent")) return code;
  FakeStream* found = driver().find(stream);
  const auto known = find_event(event);
  if (found == nullptr || !known) return kInvalidHandle;
  if (found->graph_mode >= 0) {
    driver().violate("a stream that is being captured waits for what is not");
    return kCaptureIsolation;
  }
  const std::uint64_t point = known->progress->recorded();
  driver().push(*found, [progress = known->progress, point] { progress->wait(point); });
  return 0;
}

int cuStreamIsCapturing(Stream stream, int* status) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuStreamIsCapturing")) return code;
  const FakeStream* found = driver().find(stream);
  if (found == nullptr) return kInvalidHandle;
  *status = found->graph_mode >= 0 ? 1 : 0;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter("cuThreadExchangeStreamCaptureMode")) return code;
  std::swap(*mode, capture_mode());
  return 0;
}

int cuEventCreate(Event* event, unsigned) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuEventCreate")) return code;
  const auto made =
      std::make_shared<FakeEvent>(FakeEvent{.ordinal = context_stack().back()->ordinal});
  driver().events[made.get()] = made;
  *event = reinterpret_cast<Event>(made.get());
  return 0;
}

int cuEventDestroy_v2(Event event) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuEventDestroy_v2")) return code;
  return driver().events.erase(event) == 1 ? 0 : kInvalidHandle;
}

int cuEventRecord(Event event, Stream stream) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuEventRecord")) return code;
  FakeStream* found = driver().find(stream);
  const auto known = find_event(event);
  if (found == nullptr || !known || known->ordinal != found->ordinal) return kInvalidHandle;
  if (found->graph_mode >= 0) driver().violate("an event that a graph was given");
  const std::uint64_t point = known->progress->record();
  driver().push(*found, [progress = known->progress, point] { progress->reach(point); });
  return 0;
}

int cuEventSynchronize(Event event) {
  std::shared_ptr<FakeEvent> known;
  {
    const std::lock_guard lock(driver().mutex);
    if (const int code = driver().enter_unsafe("cuEventSynchronize")) return code;
    known = find_event(event);
  }
  if (!known) return kInvalidHandle;
  known->progress->wait(known->progress->recorded());
  return driver().dead;
}

int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  if (const int code = own.enter_unsafe("cuMemHostRegister_v2")) return code;
  const Range wanted = range_of(memory, bytes);
  std::size_t pinned = bytes;
  for (const Range& known : own.registrations) {
    if (known.meets(wanted)) return kAlreadyRegistered;
    pinned += known.bytes;
  }
  if (pinned > own.pinned_bytes_max) return kOutOfMemory;
  own.registrations.push_back(wanted);
  return 0;
}

int cuMemHostUnregister(void* memory) {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  if (const int code = own.enter_unsafe("cuMemHostUnregister")) return code;
  const auto found = std::ranges::find(own.registrations, memory, &Range::begin);
  if (found == own.registrations.end()) return kNotRegistered;
  if (own.is_copied({}, *found)) own.violate("pinned memory is given back while it is copied");
  own.registrations.erase(found);
  return 0;
}

int cuMemcpyDtoHAsync_v2(void* into, DevicePointer from, std::size_t bytes, Stream stream) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuMemcpyDtoHAsync_v2")) return code;
  FakeStream* found = driver().find(stream);
  if (found == nullptr) return kInvalidHandle;
  return driver().copy(static_cast<std::byte*>(into), reinterpret_cast<const std::byte*>(from),
                       range_of(from, bytes), range_of(into, bytes), *found);
}

int cuMemcpyHtoDAsync_v2(DevicePointer into, const void* from, std::size_t bytes, Stream stream) {
  const std::lock_guard lock(driver().mutex);
  if (const int code = driver().enter_with_context("cuMemcpyHtoDAsync_v2")) return code;
  FakeStream* found = driver().find(stream);
  if (found == nullptr) return kInvalidHandle;
  return driver().copy(reinterpret_cast<std::byte*>(into), static_cast<const std::byte*>(from),
                       range_of(into, bytes), range_of(from, bytes), *found);
}

}  // extern "C"

}  // namespace deepfreeze::fake_driver
