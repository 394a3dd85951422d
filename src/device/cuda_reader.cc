#include "device/cuda_reader.h"

#include <algorithm>
#include <utility>

#include "arena/arena.h"
#include "base/try.h"

namespace deepfreeze {

Result<CudaReader> CudaReader::open(std::shared_ptr<CudaDevice> device) {
  CudaReader reader;
  reader.device_ = std::move(device);
  DF_TRY(reader.memory_, MappedMemory::allocate(kArenaGrainBytes));
  // If no memory may be pinned, copies are only slower.
  if (auto pinned = reader.device_->pin(reader.memory_.bytes())) {
    reader.pinned_ = *std::move(pinned);
  }
  return reader;
}

Status CudaReader::read(std::span<const std::byte> source,
                        const std::function<void(std::span<const std::byte>)>& take) {
  while (!source.empty()) {
    const std::size_t bytes = std::min(source.size(), memory_.bytes().size());
    const auto piece = memory_.bytes().first(bytes);
    DF_TRY_VOID(device_->copy_to_host(source.first(bytes), piece));
    DF_TRY_VOID(device_->wait());
    take(piece);
    source = source.subspan(bytes);
  }
  return {};
}

}  // namespace deepfreeze
