// The pre-faulted memory that holds the data of a save's files: their image, not a copy of it.
// Owned by the engine, re-used by every save; used by one save at a time.
#pragma once

#include <cstddef>
#include <span>

#include "base/mapped_memory.h"

namespace deepfreeze {

inline constexpr std::size_t kArenaGrainBytes = 4 * 1024 * 1024;  // one slab

class Arena {
 public:
  // Reserves at least `bytes`, rounded up to whole slabs, and touches every page. Grows only;
  // kNoSpace if memory is refused. The contents are undefined after growing; a failed growth leaves
  // the arena empty, because the old memory is given back before the new is taken.
  [[nodiscard]] Status reserve(std::size_t bytes);

  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }

 private:
  MappedMemory memory_;
};

}  // namespace deepfreeze
