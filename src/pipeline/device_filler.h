// Copies bytes that were read to their destinations, in host memory or in that of devices. For one
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/try.h"
#include "device/cuda_device.h"

namespace deepfreeze {

class DeviceFiller {
 public:
  // `devices` may be null if no put() names a device.
  explicit DeviceFiller(CudaDevices* devices) : devices_(devices) {}

  // `bytes` must not change before wait() has returned.
  [[nodiscard]] Status put(std::span<const std::byte> bytes, std::span<std::byte> into,
                           std::int32_t device) {
    if (device == kHostMemory) {
      std::memcpy(into.data(), bytes.data(), bytes.size());
      return {};
    }
    DF_TRY(const std::shared_ptr<CudaDevice> found, devices_->get(device));
    if (std::ranges::find(used_, found) == used_.end()) used_.push_back(found);
    return found->copy_to_device(bytes, into);
  }

  // Returns when all bytes have arrived. It may also wait for copies of other threads, which share
  // the device's stream.
  [[nodiscard]] Status wait() {
    Status arrived;
    for (const auto& device : used_) {
      const Status one = device->wait();
      if (arrived) arrived = one;
    }
    used_.clear();
    return arrived;
  }

 private:
  CudaDevices* const devices_;
  std::vector<std::shared_ptr<CudaDevice>> used_;  // since the last wait()
};

}  // namespace deepfreeze
