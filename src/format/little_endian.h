// Numbers and marks in binary records. Pure; the caller has checked the bounds.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace deepfreeze {

template <class T>
void put_number(std::span<std::byte> into, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    into[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <class T>
[[nodiscard]] T get_number(std::span<const std::byte> from, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(from[at + i]) << (8 * i)));
  }
  return value;
}

inline void put_mark(std::span<std::byte> into, std::size_t at, std::string_view text) {
  std::memcpy(into.data() + at, text.data(), text.size());
}

// False also if the bytes end before it.
[[nodiscard]] inline bool has_mark(std::span<const std::byte> from, std::size_t at,
                                   std::string_view text) {
  return from.size() >= at + text.size() &&
         std::memcmp(from.data() + at, text.data(), text.size()) == 0;
}

}  // namespace deepfreeze
