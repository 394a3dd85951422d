// Elements are widened to doubles, a block at a time, into buffers that stay in the first cache.
// The loops over them add to several sums in turn, so that the compiler vectorises them although it
// must not change the order of additions. A block with NaN or infinities takes a slower way.
#include "deepfreeze/tensor_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "tensor/element.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kBlock = 512;  // elements
constexpr std::size_t kLanes = 4;    // five sums of each stay in registers
static_assert(kBlock % kLanes == 0);

using Block = std::array<double, kBlock>;
using Lanes = std::array<double, kLanes>;

double total(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// As to_number(), without a branch: the exponent's bias is corrected by a product, which also makes
// subnormals normal; values that are not finite stay so.
float widened(Float16 half) {
  constexpr std::uint32_t kMagnitude = 0x7FFF;
  constexpr std::uint32_t kSign = 0x8000;
  constexpr float kBias = 0x1p112F;  // 2^(127 - 15)
  constexpr float kBeyond = 65'536;  // the result of an exponent of all ones
  constexpr std::uint32_t kInfinity = 0x7F80'0000;
  const float magnitude = std::bit_cast<float>((half.bits & kMagnitude) << 13U) * kBias;
  const std::uint32_t odd = magnitude >= kBeyond ? kInfinity : 0;
  const std::uint32_t sign = (half.bits & kSign) << 16U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | odd | sign);
}

const std::array<double, 256>& values_of_e4m3() {
  static const std::array<double, 256> kValues = [] {
    std::array<double, 256> values{};
    for (std::size_t bits = 0; bits < values.size(); ++bits) {
      values[bits] = to_number(Float8E4M3{static_cast<std::uint8_t>(bits)});
    }
    return values;
  }();
  return kValues;
}

template <class T>
void widen(std::span<const std::byte> bytes, std::size_t first, std::size_t count, Block& block) {
  if constexpr (std::is_same_v<T, Float8E4M3>) {
    const auto& values = values_of_e4m3();
    for (std::size_t i = 0; i < count; ++i) block[i] = values[element_at<T>(bytes, first + i).bits];
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const T element = element_at<T>(bytes, first + i);
      if constexpr (std::is_same_v<T, Float16>) {
        block[i] = widened(element);
      } else if constexpr (std::is_same_v<T, Float8E5M2>) {
        block[i] = widened(Float16{static_cast<std::uint16_t>(element.bits << 8U)});
      } else {
        block[i] = to_number(element);
      }
    }
  }
}

void add_one(TensorSums& sums, double value) {
  if (!std::isfinite(value)) {
    ++sums.non_finite;
    return;
  }
  ++sums.finite;
  sums.zeros += value == 0 ? 1 : 0;
  sums.min = std::min(sums.min, value);
  sums.max = std::max(sums.max, value);
  sums.sum += value;
  sums.squares += value * value;
}

// False, and nothing is added, if an element is not finite: the sum is then not finite either.
bool add_if_finite(TensorSums& sums, const Block& block, std::size_t count) {
  const std::size_t whole = count / kLanes * kLanes;
  Lanes sum{};
  Lanes squares{};
  Lanes zeros{};
  Lanes least;
  Lanes greatest;
  least.fill(sums.min);
  greatest.fill(sums.max);
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = block[i + lane];
      sum[lane] += value;
      squares[lane] += value * value;
      zeros[lane] += value == 0 ? 1.0 : 0.0;
      least[lane] = value < least[lane] ? value : least[lane];
      greatest[lane] = value > greatest[lane] ? value : greatest[lane];
    }
  }
  if (!std::isfinite(total(sum))) return false;
  sums.finite += whole;
  sums.zeros += static_cast<std::uint64_t>(total(zeros));
  sums.sum += total(sum);
  sums.squares += total(squares);
  sums.min = *std::ranges::min_element(least);
  sums.max = *std::ranges::max_element(greatest);
  for (std::size_t i = whole; i < count; ++i) add_one(sums, block[i]);
  return true;
}

void compare_one(TensorSums& sums, double now, double before) {
  if (!std::isfinite(now) || !std::isfinite(before)) return;
  sums.own_squares += now * now;
  sums.earlier_squares += before * before;
  sums.delta_squares += (now - before) * (now - before);
  sums.dot += now * before;
}

// As add_if_finite(): the squares tell.
bool compare_if_finite(TensorSums& sums, const Block& now, const Block& before, std::size_t count) {
  const std::size_t whole = count / kLanes * kLanes;
  Lanes own{};
  Lanes earlier{};
  Lanes delta{};
  Lanes dot{};
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double one = now[i + lane];
      const double other = before[i + lane];
      own[lane] += one * one;
      earlier[lane] += other * other;
      delta[lane] += (one - other) * (one - other);
      dot[lane] += one * other;
    }
  }
  if (!std::isfinite(total(own) + total(earlier))) return false;
  sums.own_squares += total(own);
  sums.earlier_squares += total(earlier);
  sums.delta_squares += total(delta);
  sums.dot += total(dot);
  for (std::size_t i = whole; i < count; ++i) compare_one(sums, now[i], before[i]);
  return true;
}

template <std::size_t kBytes>
using BitsOf = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
std::uint64_t count_changed(std::span<const std::byte> a, std::span<const std::byte> b,
                            std::size_t first, std::size_t count) {
  using Bits = BitsOf<sizeof(T)>;
  if (std::memcmp(&a[first * sizeof(T)], &b[first * sizeof(T)], count * sizeof(T)) == 0) return 0;
  std::uint32_t changed = 0;  // at most kBlock
  for (std::size_t i = first; i < first + count; ++i) {
    changed += element_at<Bits>(a, i) != element_at<Bits>(b, i) ? 1 : 0;
  }
  return changed;
}

// The exponent of a float: a double beyond its range lands in the outermost bins anyway.
void count_exponent(TensorSums& sums, double value) {
  if (value == 0 || !std::isfinite(value)) return;
  constexpr int kBias = 1023;
  constexpr int kMantissaBits = 52;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>((bits >> kMantissaBits) & 0x7FF) - kBias;
  const int last = static_cast<int>(kExponentBins) - 1;
  ++sums.exponents[static_cast<std::size_t>(std::clamp(exponent - kExponentFirst, 0, last))];
}

template <class T>
void add_elements(TensorSums& sums, std::span<const std::byte> bytes,
                  std::span<const std::byte> earlier, std::size_t stride) {
  Block now;
  Block before;
  const std::size_t elements = bytes.size() / sizeof(T);
  for (std::size_t first = 0; first < elements; first += kBlock) {
    const std::size_t count = std::min(kBlock, elements - first);
    widen<T>(bytes, first, count, now);
    const bool finite = add_if_finite(sums, now, count);
    for (std::size_t i = 0; !finite && i < count; ++i) add_one(sums, now[i]);
    if (!std::is_integral_v<T>) {
      const std::size_t begin = (stride - first % stride) % stride;
      for (std::size_t i = begin; i < count; i += stride) count_exponent(sums, now[i]);
    }
    if (earlier.empty()) continue;
    widen<T>(earlier, first, count, before);
    sums.changed += count_changed<T>(bytes, earlier, first, count);
    const bool both = finite && compare_if_finite(sums, now, before, count);
    for (std::size_t i = 0; !both && i < count; ++i) compare_one(sums, now[i], before[i]);
  }
}

}  // namespace

void add_to_sums(TensorSums& sums, DType dtype, std::span<const std::byte> bytes,
                 std::span<const std::byte> earlier, std::size_t stride) {
  with_element_type(dtype, [&]<class T>(T) {
    add_elements<T>(sums, bytes, earlier, std::max<std::size_t>(stride, 1));
  });
}

}  // namespace deepfreeze
