// The place of bytes: in host memory, or on a CUDA device. Value types, any thread.
#pragma once

#include <cstdint>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::int32_t kHostMemory = -1;  // else the ordinal of a device

// A stream of a CUDA device: its cudaStream_t or CUstream; 0 is the legacy default stream. It
// belongs to the device's primary context, as all of the CUDA runtime's do.
struct DeviceStream {
  std::int32_t device = 0;
  std::uintptr_t stream = 0;
};

// Whether memory of CUDA devices can be captured and restored here; kUnsupported says why not. The
// first call looks for the driver: libcuda.so.1, or the library that DEEPFREEZE_CUDA_LIBRARY names.
[[nodiscard]] Status check_devices();

}  // namespace deepfreeze
