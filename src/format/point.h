// The places of a run's history. Value types.
#pragma once

#include <cstdint>
#include <string>

namespace deepfreeze {

// One point of a run's history.
struct Point {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint64_t save_index = 0;
  std::uint64_t attempt_id = 0;
  bool operator==(const Point&) const = default;
};

// The attempt for which a file was written, if other attempts have the file, too, by a hard link.
// The file's header names it.
struct Origin {
  std::string run_id;  // 16 hex digits
  Point point;
  bool operator==(const Origin&) const = default;
};

}  // namespace deepfreeze
