// Bytes of a JSON string that stand for themselves and need no look at their neighbours.
#pragma once

#include <array>
#include <cstddef>

namespace deepfreeze {

inline constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain.at(c) = c != '"' && c != '\\';
  return plain;
}();

inline bool is_plain(char c) { return kPlain[static_cast<unsigned char>(c)]; }

}  // namespace deepfreeze
