// The bytes of elements, split into planes and joined again. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace deepfreeze {

// `planes` has as many bytes as `elements`: whole elements of type T. Compilers make vector
// instructions of both loops.
template <class T>
void split_planes(std::span<const std::byte> elements, std::span<std::byte> planes) {
  const std::size_t count = elements.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    T element = 0;
    std::memcpy(&element, elements.data() + i * sizeof(T), sizeof(T));
    for (std::size_t plane = 0; plane < sizeof(T); ++plane) {
      planes[plane * count + i] = static_cast<std::byte>(element >> (8 * plane));
    }
  }
}

template <class T>
void join_planes(std::span<const std::byte> planes, std::span<std::byte> elements) {
  const std::size_t count = elements.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    T element = 0;
    for (std::size_t plane = 0; plane < sizeof(T); ++plane) {
      const T byte = static_cast<T>(planes[plane * count + i]);
      element = static_cast<T>(element | static_cast<T>(byte << (8 * plane)));
    }
    std::memcpy(elements.data() + i * sizeof(T), &element, sizeof(T));
  }
}

inline constexpr std::size_t kElementBytesMax = 8;

// Elements have 1 << `log` bytes: 1, 2, 4 or 8. `planes` and `elements` may not be
// the same memory.
inline void split_planes(std::size_t log, std::span<const std::byte> elements,
                         std::span<std::byte> planes) {
  switch (log) {
    case 0:
      std::memcpy(planes.data(), elements.data(), elements.size());
      break;
    case 1:
      split_planes<std::uint16_t>(elements, planes);
      break;
    case 2:
      split_planes<std::uint32_t>(elements, planes);
      break;
    default:
      split_planes<std::uint64_t>(elements, planes);
      break;
  }
}

inline void join_planes(std::size_t log, std::span<const std::byte> planes,
                        std::span<std::byte> elements) {
  switch (log) {
    case 0:
      std::memcpy(elements.data(), planes.data(), planes.size());
      break;
    case 1:
      join_planes<std::uint16_t>(planes, elements);
      break;
    case 2:
      join_planes<std::uint32_t>(planes, elements);
      break;
    default:
      join_planes<std::uint64_t>(planes, elements);
      break;
  }
}

}  // namespace deepfreeze
