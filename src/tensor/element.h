// Stored elements as numbers: every dtype of the format, the small floats included. Pure.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};  // no infinity; only S.1111.111 is NaN
struct Float8E5M2 {
  std::uint8_t bits;
};  // the upper half of a Float16

// Widens a small float: `mantissa_bits` below `exponent_bits` below the sign, bias as in IEEE.
// Infinities and NaNs must have been dealt with.
[[nodiscard]] constexpr double widen_finite(std::uint32_t bits, int exponent_bits,
                                            int mantissa_bits) {
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1U);
  const std::uint32_t exponent = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1U);
  const bool negative = ((bits >> (mantissa_bits + exponent_bits)) & 1U) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint32_t whole = exponent == 0 ? mantissa : mantissa | (1U << mantissa_bits);
  const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - mantissa_bits;
  // 2^power as a double's own bits: always a normal number here, and exact.
  const double scale = std::bit_cast<double>(static_cast<std::uint64_t>(power + 1023) << 52U);
  const double magnitude = static_cast<double>(whole) * scale;
  return negative ? -magnitude : magnitude;
}

[[nodiscard]] inline double to_number(Float16 value) {
  constexpr std::uint32_t kExponent = 0x7C00;
  if ((value.bits & kExponent) != kExponent) return widen_finite(value.bits, 5, 10);
  if ((value.bits & 0x03FFU) != 0) return std::numeric_limits<double>::quiet_NaN();
  return (value.bits & 0x8000U) != 0 ? -std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::infinity();
}
[[nodiscard]] inline double to_number(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
[[nodiscard]] inline double to_number(Float8E4M3 value) {
  if ((value.bits & 0x7FU) == 0x7FU) return std::numeric_limits<double>::quiet_NaN();
  return widen_finite(value.bits, 4, 3);
}
[[nodiscard]] inline double to_number(Float8E5M2 value) {
  return to_number(Float16{static_cast<std::uint16_t>(value.bits << 8U)});
}
template <class T>
  requires std::is_arithmetic_v<T>
[[nodiscard]] double to_number(T value) {
  return static_cast<double>(value);
}

// |a - b|; whole numbers are subtracted as such, since 64-bit ones don't fit a double.
template <class T>
[[nodiscard]] double distance(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const auto difference =
        a > b ? static_cast<U>(a) - static_cast<U>(b) : static_cast<U>(b) - static_cast<U>(a);
    return static_cast<double>(static_cast<U>(difference));
  } else {
    return std::abs(to_number(a) - to_number(b));
  }
}

// The element at `index`, wherever it lies.
template <class T>
[[nodiscard]] T element_at(std::span<const std::byte> bytes, std::uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Calls `fn` with a value of the C++ type in which the elements of `dtype` are stored.
template <class Fn>
decltype(auto) with_element_type(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return fn(std::uint8_t{});
    case DType::kI8:
      return fn(std::int8_t{});
    case DType::kF8E4M3:
      return fn(Float8E4M3{});
    case DType::kF8E5M2:
      return fn(Float8E5M2{});
    case DType::kI16:
      return fn(std::int16_t{});
    case DType::kU16:
      return fn(std::uint16_t{});
    case DType::kF16:
      return fn(Float16{});
    case DType::kBF16:
      return fn(BFloat16{});
    case DType::kI32:
      return fn(std::int32_t{});
    case DType::kU32:
      return fn(std::uint32_t{});
    case DType::kF32:
      return fn(float{});
    case DType::kI64:
      return fn(std::int64_t{});
    case DType::kU64:
      return fn(std::uint64_t{});
    case DType::kF64:
      break;
  }
  return fn(double{});
}

}  // namespace deepfreeze
