#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/try.h"

namespace deepfreeze::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

std::unexpected<Error> unavailable(const std::string& why) {
  return fail(ErrorCode::kUnsupported, "memory of a CUDA device can't be read here: " + why);
}

std::string last_loader_error() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "unknown cause";
}

template <class Function>
Status find(void* library, const char* name, Function*& found) {
  found = reinterpret_cast<Function*>(::dlsym(library, name));
  if (found != nullptr) return {};
  return unavailable(fmt::format("the driver is too old: {}", last_loader_error()));
}

Status find_contexts_and_streams(void* library, Driver& found) {
  DF_TRY_VOID(find(library, "cuInit", found.init));
  DF_TRY_VOID(find(library, "cuGetErrorString", found.get_error_string));
  DF_TRY_VOID(find(library, "cuDeviceGet", found.device_get));
  DF_TRY_VOID(find(library, "cuDevicePrimaryCtxRetain", found.primary_context_retain));
  DF_TRY_VOID(find(library, "cuDevicePrimaryCtxRelease_v2", found.primary_context_release));
  DF_TRY_VOID(find(library, "cuCtxPushCurrent_v2", found.context_push));
  DF_TRY_VOID(find(library, "cuCtxPopCurrent_v2", found.context_pop));
  DF_TRY_VOID(find(library, "cuCtxGetStreamPriorityRange", found.stream_priority_range));
  DF_TRY_VOID(find(library, "cuStreamCreateWithPriority", found.stream_create));
  DF_TRY_VOID(find(library, "cuStreamDestroy_v2", found.stream_destroy));
  DF_TRY_VOID(find(library, "cuStreamSynchronize", found.stream_synchronize));
  DF_TRY_VOID(find(library, "cuStreamWaitEvent", found.stream_wait_event));
  DF_TRY_VOID(find(library, "cuStreamIsCapturing", found.stream_is_capturing));
  return find(library, "cuThreadExchangeStreamCaptureMode", found.thread_exchange_capture_mode);
}

Status find_events_and_memory(void* library, Driver& found) {
  DF_TRY_VOID(find(library, "cuEventCreate", found.event_create));
  DF_TRY_VOID(find(library, "cuEventDestroy_v2", found.event_destroy));
  DF_TRY_VOID(find(library, "cuEventRecord", found.event_record));
  DF_TRY_VOID(find(library, "cuEventSynchronize", found.event_synchronize));
  DF_TRY_VOID(find(library, "cuMemHostRegister_v2", found.host_register));
  DF_TRY_VOID(find(library, "cuMemHostUnregister", found.host_unregister));
  DF_TRY_VOID(find(library, "cuMemcpyDtoHAsync_v2", found.copy_to_host));
  return find(library, "cuMemcpyHtoDAsync_v2", found.copy_to_device);
}

Result<Driver> load() {
  const char* chosen = std::getenv("DEEPFREEZE_CUDA_LIBRARY");
  const char* name = chosen != nullptr && *chosen != '\0' ? chosen : kLibrary;
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);  // stays: a driver is never unloaded
  if (library == nullptr) return unavailable(last_loader_error());
  Driver found{};
  DF_TRY_VOID(find_contexts_and_streams(library, found));
  DF_TRY_VOID(find_events_and_memory(library, found));
  const Status begun = check(found, found.init(0), "cuInit");
  if (!begun) return unavailable(begun.error().message());
  return found;
}

}  // namespace

Result<const Driver*> driver() {
  static const Result<Driver> kLoaded = load();
  if (!kLoaded) return std::unexpected(kLoaded.error());
  return &*kLoaded;
}

namespace {

ErrorCode code_of(Code code) {
  if (code == kOutOfMemory) return ErrorCode::kNoSpace;
  const bool is_of_graphs = code >= kOfGraphsFirst && code <= kOfGraphsLast;
  return is_of_graphs ? ErrorCode::kUnsupported : ErrorCode::kIo;
}

}  // namespace

Status check(const Driver& driver, Code code, std::string_view call) {
  if (code == kSuccess) return {};
  const char* text = nullptr;
  const bool known = driver.get_error_string(code, &text) == kSuccess && text != nullptr;
  return fail(code_of(code),
              fmt::format("{}: {} (CUDA error {})", call, known ? text : "unknown error", code));
}

}  // namespace deepfreeze::cuda
