// The pre-faulted memory that holds the data of a save's files: their image, not a copy of it.
// Owned by the engine, re-used by every save; used by one save at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mapped_memory.h"
#include "ipc/shared_memory.h"

namespace deepfreeze {

inline constexpr std::size_t kArenaGrainBytes = 4 * 1024 * 1024;  // one slab

class Arena {
 public:
  // kShared: another process may go on with the bytes that lie there; if the system has no such
  // memory, the arena is of the process alone, and a warning is logged.
  enum class Kind : std::uint8_t { kOwn, kShared };
  Arena() = default;
  explicit Arena(Kind kind) : kind_(kind) {}

  // Reserves at least `bytes`, rounded up to whole slabs, and touches every page. Grows only;
  // kNoSpace if memory is refused. The contents are undefined after growing; a failed growth leaves
  // the arena empty, because the old memory is given back before the new is taken.
  [[nodiscard]] Status reserve(std::size_t bytes);

  [[nodiscard]] std::span<std::byte> bytes() const {
    return shared_.bytes().empty() ? memory_.bytes() : shared_.bytes();
  }
  // To be sent to the other process; -1 if the memory is not shared.
  [[nodiscard]] int shared_fd() const { return shared_.fd(); }

 private:
  [[nodiscard]] bool reserve_shared(std::size_t bytes);

  Kind kind_ = Kind::kOwn;
  MappedMemory memory_;  // or
  SharedMemory shared_;
};

}  // namespace deepfreeze
