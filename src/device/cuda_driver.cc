#include "device/cuda_driver.h"

#include <fmt/format.h>

#include "base/loaded_library.h"
#include "base/try.h"

namespace deepfreeze::cuda {
namespace {

Status find_contexts_and_streams(const LoadedLibrary& library, Driver& found) {
  DF_TRY_VOID(library.find("cuInit", found.init));
  DF_TRY_VOID(library.find("cuGetErrorString", found.get_error_string));
  DF_TRY_VOID(library.find("cuDeviceGet", found.device_get));
  DF_TRY_VOID(library.find("cuDevicePrimaryCtxRetain", found.primary_context_retain));
  DF_TRY_VOID(library.find("cuDevicePrimaryCtxRelease_v2", found.primary_context_release));
  DF_TRY_VOID(library.find("cuCtxPushCurrent_v2", found.context_push));
  DF_TRY_VOID(library.find("cuCtxPopCurrent_v2", found.context_pop));
  DF_TRY_VOID(library.find("cuCtxGetStreamPriorityRange", found.stream_priority_range));
  DF_TRY_VOID(library.find("cuStreamCreateWithPriority", found.stream_create));
  DF_TRY_VOID(library.find("cuStreamDestroy_v2", found.stream_destroy));
  DF_TRY_VOID(library.find("cuStreamSynchronize", found.stream_synchronize));
  DF_TRY_VOID(library.find("cuStreamWaitEvent", found.stream_wait_event));
  DF_TRY_VOID(library.find("cuStreamIsCapturing", found.stream_is_capturing));
  return library.find("cuThreadExchangeStreamCaptureMode", found.thread_exchange_capture_mode);
}

Status find_events_and_memory(const LoadedLibrary& library, Driver& found) {
  DF_TRY_VOID(library.find("cuEventCreate", found.event_create));
  DF_TRY_VOID(library.find("cuEventDestroy_v2", found.event_destroy));
  DF_TRY_VOID(library.find("cuEventRecord", found.event_record));
  DF_TRY_VOID(library.find("cuEventSynchronize", found.event_synchronize));
  DF_TRY_VOID(library.find("cuMemHostRegister_v2", found.host_register));
  DF_TRY_VOID(library.find("cuMemHostUnregister", found.host_unregister));
  DF_TRY_VOID(library.find("cuMemcpyDtoHAsync_v2", found.copy_to_host));
  return library.find("cuMemcpyHtoDAsync_v2", found.copy_to_device);
}

Result<Driver> load() {
  DF_TRY(const auto library, LoadedLibrary::open("libcuda.so.1", "DEEPFREEZE_CUDA_LIBRARY",
                                                 "memory of a CUDA device can't be read here"));
  Driver found{};
  DF_TRY_VOID(find_contexts_and_streams(library, found));
  DF_TRY_VOID(find_events_and_memory(library, found));
  const Status begun = check(found, found.init(0), "cuInit");
  if (!begun) return library.unavailable(begun.error().message());
  return found;
}

}  // namespace

Result<const Driver*> driver() { return loaded_once<load>(); }

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
