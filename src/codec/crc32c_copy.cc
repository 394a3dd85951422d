// One pass: 64 bytes are loaded once, stored past the caches, and folded into the checksum from
// the same register. Folding: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009; the constants are computed here.
#include "codec/crc32c_copy.h"

#include <array>
#include <cstring>

#include "base/thread_sanitizer.h"
#include "codec/crc32c.h"

// The sanitizer does not watch stores past the caches.
#if defined(__x86_64__) && !DF_THREAD_SANITIZER
#define DF_WIDE_COPY 1
#include <immintrin.h>
#else
#define DF_WIDE_COPY 0
#endif

namespace deepfreeze {
namespace {

std::uint32_t copy_then_sum(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return crc32c(to);
}

#if DF_WIDE_COPY

#define DF_WIDE __attribute__((target("avx512f,avx512vl,pclmul,vpclmulqdq,sse4.2")))

constexpr std::size_t kLaneBytes = 16;
constexpr std::size_t kVectorBytes = 64;
constexpr std::size_t kStrideBytes = 4 * kVectorBytes;  // four folds in flight hide their latency

// x^power modulo the Castagnoli polynomial; the highest power in the highest bit.
consteval std::uint32_t power_of_x(std::uint64_t power) {
  constexpr std::uint32_t kPolynomial = 0x1edc6f41;
  std::uint32_t rest = 1;
  for (; power > 0; --power) rest = (rest << 1) ^ ((rest >> 31) != 0 ? kPolynomial : 0);
  return rest;
}

// For the reflected bit order of the CRC, in which a product is one bit too short.
consteval std::int64_t reflected(std::uint32_t polynomial) {
  std::uint64_t turned = 0;
  for (int bit = 0; bit < 32; ++bit) turned |= std::uint64_t{(polynomial >> bit) & 1} << (31 - bit);
  return static_cast<std::int64_t>(turned << 1);
}

// The constants that carry the two halves of a lane over `bytes` bytes.
template <std::size_t bytes>
struct Fold {
  static constexpr std::int64_t kLow = reflected(power_of_x(bytes * 8 + 32));
  static constexpr std::int64_t kHigh = reflected(power_of_x(bytes * 8 - 32));
};

template <std::size_t bytes>
DF_WIDE __m512i fold(__m512i sum, __m512i next) {
  const __m512i factors = _mm512_set_epi64(
      Fold<bytes>::kHigh, Fold<bytes>::kLow, Fold<bytes>::kHigh, Fold<bytes>::kLow,
      Fold<bytes>::kHigh, Fold<bytes>::kLow, Fold<bytes>::kHigh, Fold<bytes>::kLow);
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, factors, 0x00),
                                   _mm512_clmulepi64_epi128(sum, factors, 0x11), next, kXorOfThree);
}

DF_WIDE __m128i fold_lane(__m128i sum, __m128i next) {
  const __m128i factors = _mm_set_epi64x(Fold<kLaneBytes>::kHigh, Fold<kLaneBytes>::kLow);
  return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(sum, factors, 0x00),
                                     _mm_clmulepi64_si128(sum, factors, 0x11)),
                       next);
}

// The CRC, without the inversion at its end, of a message that folds to `sum`.
DF_WIDE std::uint32_t reduce(__m512i sum) {
  alignas(kVectorBytes) std::array<std::uint64_t, kVectorBytes / sizeof(std::uint64_t)> words;
  _mm512_store_si512(words.data(), sum);
  __m128i lane = _mm_setzero_si128();
  for (std::size_t i = 0; i < words.size(); i += 2) {
    lane = fold_lane(lane, _mm_loadu_si128(reinterpret_cast<const __m128i*>(&words[i])));
  }
  const auto low = static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane));
  const auto high = static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1));
  return static_cast<std::uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, low), high));
}

DF_WIDE __m512i load_and_store(const std::byte* from, std::byte* to) {
  const __m512i vector = _mm512_loadu_si512(from);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), vector);
  return vector;
}

// `bytes`: a multiple of the stride, and not 0. `to` is aligned to a vector.
DF_WIDE std::uint32_t copy_strides(const std::byte* from, std::byte* to, std::size_t bytes) {
  constexpr int kInversionAtStart = -1;
  __m512i a = load_and_store(from, to);
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(kInversionAtStart)));
  __m512i b = load_and_store(from + kVectorBytes, to + kVectorBytes);
  __m512i c = load_and_store(from + 2 * kVectorBytes, to + 2 * kVectorBytes);
  __m512i d = load_and_store(from + 3 * kVectorBytes, to + 3 * kVectorBytes);
  for (std::size_t at = kStrideBytes; at < bytes; at += kStrideBytes) {
    a = fold<kStrideBytes>(a, load_and_store(from + at, to + at));
    b = fold<kStrideBytes>(b, load_and_store(from + at + kVectorBytes, to + at + kVectorBytes));
    c = fold<kStrideBytes>(
        c, load_and_store(from + at + 2 * kVectorBytes, to + at + 2 * kVectorBytes));
    d = fold<kStrideBytes>(
        d, load_and_store(from + at + 3 * kVectorBytes, to + at + 3 * kVectorBytes));
  }
  _mm_sfence();  // a release by this thread does not order non-temporal stores by itself
  b = fold<kVectorBytes>(a, b);
  c = fold<kVectorBytes>(b, c);
  return ~reduce(fold<kVectorBytes>(c, d));
}

bool is_wide_processor() {
  static const bool wide =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("sse4.2") != 0;
  return wide;
}

bool is_vector_aligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kVectorBytes == 0;
}

#endif

}  // namespace

std::uint32_t copy_with_crc32c(std::span<const std::byte> from, std::span<std::byte> to) {
#if DF_WIDE_COPY
  const std::size_t even = from.size() - from.size() % kStrideBytes;
  if (even > 0 && is_vector_aligned(to.data()) && is_wide_processor()) {
    const std::uint32_t crc = copy_strides(from.data(), to.data(), even);
    if (even == from.size()) return crc;
    std::memcpy(to.data() + even, from.data() + even, from.size() - even);
    return crc32c_extend(crc, to.subspan(even));
  }
#endif
  return copy_then_sum(from, to);
}

}  // namespace deepfreeze
