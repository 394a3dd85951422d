#include "inspect/read_tensor.h"

#include <array>

#include "base/try.h"

namespace deepfreeze {

Result<LoadedTensor> LoadedTensor::read(const Snapshot& snapshot, const TensorSpec& spec,
                                        const ReadSettings& settings) {
  DF_TRY(const std::uint64_t bytes, spec_bytes(spec));
  DF_TRY(MappedMemory memory, MappedMemory::allocate(bytes));
  const std::array<ReadTarget, 1> target{{{.key = spec.key, .into = memory.bytes()}}};
  DF_TRY_VOID(snapshot.read(target, settings));
  return LoadedTensor(std::move(memory));
}

}  // namespace deepfreeze
