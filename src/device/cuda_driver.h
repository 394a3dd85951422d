// The few functions of NVIDIA's driver that capture and restore need, found at run time: the build
// needs nothing of CUDA, and on a machine without it everything else works. Names and signatures
// are those of the CUDA Driver API (docs.nvidia.com/cuda/cuda-driver-api).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze::cuda {

using Code = int;  // CUresult; 0: success
using DeviceId = int;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;  // null: the legacy default stream of the context
using Event = struct EventTag*;
using DevicePointer = std::uintptr_t;

inline constexpr Code kSuccess = 0;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kOfGraphsFirst = 900;  // forbidden because of a graph being captured
inline constexpr Code kOfGraphsLast = 908;
inline constexpr unsigned kStreamNonBlocking = 1;  // not ordered after the default stream
inline constexpr unsigned kEventBlockingSync = 1;  // the waiter gives up its core
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;  // for all contexts
inline constexpr int kCaptureModeRelaxed = 2;         // of a thread: graphs don't restrict it
inline constexpr int kCaptureStatusNone = 0;

// Any thread. All but init, get_error_string and the primary context's want a current context.
struct Driver {
  Code (*init)(unsigned flags);
  Code (*get_error_string)(Code code, const char** text);
  Code (*device_get)(DeviceId* device, int ordinal);
  Code (*primary_context_retain)(Context* context, DeviceId device);
  Code (*primary_context_release)(DeviceId device);
  Code (*context_push)(Context context);
  Code (*context_pop)(Context* context);
  Code (*stream_priority_range)(int* least, int* greatest);
  Code (*stream_create)(Stream* stream, unsigned flags, int priority);
  Code (*stream_destroy)(Stream stream);
  Code (*stream_synchronize)(Stream stream);
  Code (*stream_wait_event)(Stream stream, Event event, unsigned flags);
  Code (*stream_is_capturing)(Stream stream, int* status);
  Code (*thread_exchange_capture_mode)(int* mode);
  Code (*event_create)(Event* event, unsigned flags);
  Code (*event_destroy)(Event event);
  Code (*event_record)(Event event, Stream stream);
  Code (*event_synchronize)(Event event);
  Code (*host_register)(void* memory, std::size_t bytes, unsigned flags);
  Code (*host_unregister)(void* memory);
  Code (*copy_to_host)(void* into, DevicePointer from, std::size_t bytes, Stream stream);
  Code (*copy_to_device)(DevicePointer into, const void* from, std::size_t bytes, Stream stream);
};

// Loaded and initialised at the first call, for the life of the process. kUnsupported says why
// there is none. The library is libcuda.so.1, or the one that DEEPFREEZE_CUDA_LIBRARY names.
[[nodiscard]] Result<const Driver*> driver();

// `call` names the failed call for the message. kNoSpace if memory is refused, kUnsupported if a
// graph that is being captured forbids the call, else kIo.
[[nodiscard]] Status check(const Driver& driver, Code code, std::string_view call);

}  // namespace deepfreeze::cuda
