// Names that a hash table puts into one bucket: a quarter of a million of them turn a second's work
// into minutes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace deepfreeze {

// Different names of printable ASCII, all with the same std::hash of libstdc++, which mixes 8
// bytes at a time by steps that can be undone and has no secret. At most 64^3.
[[nodiscard]] std::vector<std::string> names_of_equal_hash(std::size_t count);

}  // namespace deepfreeze
