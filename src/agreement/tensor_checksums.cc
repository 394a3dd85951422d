#include "agreement/tensor_checksums.h"

#include <map>
#include <utility>

#include "base/try.h"
#include "codec/crc32c.h"
#include "device/cuda_reader.h"
#include "device/device_capture.h"

namespace deepfreeze {
namespace {

using Readers = std::map<std::int32_t, CudaReader>;

Result<Readers> open_readers(const TensorTable& tensors, CudaDevices& devices,
                             std::span<const DeviceStream> streams) {
  CaptureDevices used;
  Readers readers;
  for (const Tensor& tensor : tensors) {
    if (tensor.device == kHostMemory || used.contains(tensor.device)) continue;
    DF_TRY(used[tensor.device], devices.get(tensor.device));
    DF_TRY(CudaReader reader, CudaReader::open(used[tensor.device]));
    readers.emplace(tensor.device, std::move(reader));
  }
  DF_TRY_VOID(follow(used, streams));
  return readers;
}

}  // namespace

Result<std::vector<std::uint32_t>> checksums_of(const TensorTable& tensors, CudaDevices& devices,
                                                std::span<const DeviceStream> streams) {
  DF_TRY(Readers readers, open_readers(tensors, devices, streams));
  std::vector<std::uint32_t> sums;
  sums.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    if (tensor.device == kHostMemory) {
      sums.push_back(crc32c(tensor.data));
      continue;
    }
    std::uint32_t sum = crc32c({});
    DF_TRY_VOID(readers.at(tensor.device).read(tensor.data, [&](std::span<const std::byte> bytes) {
      sum = crc32c_extend(sum, bytes);
    }));
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace deepfreeze
