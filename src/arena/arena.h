// The pre-faulted memory that holds the data of a save's files: their image, not a copy of it.
// Owned by the engine, re-used by every save; used by one save at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>

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
  // kNoSpace if memory is refused. The contents are undefined after growing, and the place may be
  // another; a failed growth leaves the arena empty. Returns early, with the slabs that it has by
  // then, if it is told to stop; one that could be told so stays of its kind.
  [[nodiscard]] Status reserve(std::size_t bytes, const std::stop_token& stop = {});

  [[nodiscard]] std::span<std::byte> bytes() const {
    return mapped().first(std::min(touched_, mapped().size()));
  }
  // To be sent to the other process; -1 if the memory is not shared.
  [[nodiscard]] int shared_fd() const { return shared_.fd(); }

 private:
  [[nodiscard]] std::span<std::byte> mapped() const {
    return shared_.bytes().empty() ? memory_.bytes() : shared_.bytes();
  }
  [[nodiscard]] Status map(std::size_t bytes);
  [[nodiscard]] Status touch(std::span<std::byte> part);

  Kind kind_ = Kind::kOwn;
  MappedMemory memory_;  // or
  SharedMemory shared_;
  std::size_t touched_ = 0;
};

}  // namespace deepfreeze
