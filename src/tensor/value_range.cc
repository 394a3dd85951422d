// Floats are compared as integers: if the sign bit is set, the other bits are inverted, which puts
// the bit patterns in the order of the values. One loop then serves all types, and the compiler
// vectorises it.
#include "tensor/value_range.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tensor/element.h"

namespace deepfreeze {
namespace {

template <class T>
struct Bits;  // of an element; kNonFinite are the bits that are all set in NaN and infinities
template <>
struct Bits<Float8E4M3> {
  using Type = std::int8_t;
  static constexpr Type kNonFinite = 0x7F;
};
template <>
struct Bits<Float8E5M2> {
  using Type = std::int8_t;
  static constexpr Type kNonFinite = 0x7C;
};
template <>
struct Bits<Float16> {
  using Type = std::int16_t;
  static constexpr Type kNonFinite = 0x7C00;
};
template <>
struct Bits<BFloat16> {
  using Type = std::int16_t;
  static constexpr Type kNonFinite = 0x7F80;
};
template <>
struct Bits<float> {
  using Type = std::int32_t;
  static constexpr Type kNonFinite = 0x7F80'0000;
};
template <>
struct Bits<double> {
  using Type = std::int64_t;
  static constexpr Type kNonFinite = 0x7FF0'0000'0000'0000;
};

// Its own inverse.
template <class B>
B turned(B bits) {
  constexpr int kSign = std::numeric_limits<B>::digits;
  return static_cast<B>(bits ^ ((bits >> kSign) & std::numeric_limits<B>::max()));
}

template <class B>
struct Keys {
  B least = std::numeric_limits<B>::max();
  B greatest = std::numeric_limits<B>::min();
  std::uint64_t non_finite = 0;
};

// `bytes` holds no more elements than the type of their bits can count.
template <class B, B kNonFinite>
void look_at(std::span<const std::byte> bytes, Keys<B>& keys) {
  constexpr B kMost = std::numeric_limits<B>::max();
  constexpr B kLeast = std::numeric_limits<B>::min();
  B least = kMost;
  B greatest = kLeast;
  B non_finite = 0;
  const std::size_t count = bytes.size() / sizeof(B);
  for (std::size_t i = 0; i < count; ++i) {
    const B bits = element_at<B>(bytes, i);
    const B key = turned(bits);
    const B odd = (bits & kNonFinite) == kNonFinite ? B{-1} : B{0};  // all bits
    const B low = static_cast<B>((key & ~odd) | (kMost & odd));
    const B high = static_cast<B>((key & ~odd) | (kLeast & odd));
    least = std::min(least, low);
    greatest = std::max(greatest, high);
    non_finite = static_cast<B>(non_finite - odd);
  }
  keys.least = std::min(keys.least, least);
  keys.greatest = std::max(keys.greatest, greatest);
  keys.non_finite += static_cast<std::uint64_t>(non_finite);
}

template <class T, class B>
double value_of(B key) {
  return to_number(std::bit_cast<T>(turned(key)));
}

template <class T>
ValueRange range_of(std::span<const std::byte> bytes) {
  using B = Bits<T>::Type;
  constexpr std::size_t kCountable = std::min<std::uint64_t>(std::numeric_limits<B>::max(), 4096);
  Keys<B> keys;
  for (std::size_t at = 0; at < bytes.size(); at += kCountable * sizeof(B)) {
    const std::size_t some = std::min(kCountable * sizeof(B), bytes.size() - at);
    look_at<B, Bits<T>::kNonFinite>(bytes.subspan(at, some), keys);
  }
  const std::uint64_t finite = bytes.size() / sizeof(B) - keys.non_finite;
  if (finite == 0) return {.non_finite = keys.non_finite};
  return {.min = value_of<T>(keys.least),
          .max = value_of<T>(keys.greatest),
          .finite = finite,
          .non_finite = keys.non_finite};
}

}  // namespace

bool is_floating_point(DType dtype) {
  return with_element_type(dtype, []<class T>(T) { return !std::is_integral_v<T>; });
}

ValueRange value_range(DType dtype, std::span<const std::byte> bytes) {
  return with_element_type(dtype, [&]<class T>(T) -> ValueRange {
    if constexpr (std::is_integral_v<T>) {
      return {};
    } else {
      return range_of<T>(bytes);
    }
  });
}

ValueRange joined(const ValueRange& a, const ValueRange& b) {
  if (a.finite == 0) {
    return {
        .min = b.min, .max = b.max, .finite = b.finite, .non_finite = a.non_finite + b.non_finite};
  }
  if (b.finite == 0) return joined(b, a);
  return {.min = std::min(a.min, b.min),
          .max = std::max(a.max, b.max),
          .finite = a.finite + b.finite,
          .non_finite = a.non_finite + b.non_finite};
}

}  // namespace deepfreeze
