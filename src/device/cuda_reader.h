// Reads memory of a device piece by piece, for callers that need its bytes but no copy of the
// whole. Blocking; for one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/mapped_memory.h"
#include "device/cuda_device.h"

namespace deepfreeze {

class CudaReader {
 public:
  // kNoSpace if there is no memory for the pieces.
  [[nodiscard]] static Result<CudaReader> open(std::shared_ptr<CudaDevice> device);

  // Hands all of `source` to `take`, one piece after the other. Ordered as the device's own stream.
  [[nodiscard]] Status read(std::span<const std::byte> source,
                            const std::function<void(std::span<const std::byte>)>& take);

 private:
  std::shared_ptr<CudaDevice> device_;
  MappedMemory memory_;
  PinnedMemory pinned_;  // that memory; goes before it
};

}  // namespace deepfreeze
