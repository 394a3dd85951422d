// The CRC-32C of each tensor of a table, wherever it lies. Blocking; for one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deepfreeze/tensor.h"
#include "staging/cuda_device.h"

namespace deepfreeze {

// What lies on devices is read as the work given to `streams` so far leaves it; of a device that
// none is named of, that given to its default stream.
[[nodiscard]] Result<std::vector<std::uint32_t>> checksums_of(
    const TensorTable& tensors, CudaDevices& devices, std::span<const DeviceStream> streams);

}  // namespace deepfreeze
