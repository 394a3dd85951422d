// One stored tensor in memory, verified.
#pragma once

#include <span>

#include "base/mapped_memory.h"
#include "restore/snapshot.h"

namespace deepfreeze {

class LoadedTensor {
 public:
  // kNoSpace if memory is refused; otherwise the errors of Snapshot::read().
  [[nodiscard]] static Result<LoadedTensor> read(const Snapshot& snapshot, const TensorSpec& spec,
                                                 const ReadSettings& settings);
  [[nodiscard]] std::span<const std::byte> bytes() const { return memory_.bytes(); }

 private:
  explicit LoadedTensor(MappedMemory memory) : memory_(std::move(memory)) {}
  MappedMemory memory_;
};

}  // namespace deepfreeze
