// The CRC-32C of each tensor of a table, wherever it lies. Blocking; for one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deepfreeze/tensor.h"
#include "device/cuda_device.h"

namespace deepfreeze {

// Tensors on devices are read after the work given to `streams` so far; on a device with no stream
// here, after that given to its default stream.
[[nodiscard]] Result<std::vector<std::uint32_t>> checksums_of(
    const TensorTable& tensors, CudaDevices& devices, std::span<const DeviceStream> streams);

}  // namespace deepfreeze
