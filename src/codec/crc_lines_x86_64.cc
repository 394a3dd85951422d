#include <nmmintrin.h>

#include <cstring>

#include "codec/crc32c.h"
#include "codec/crc_lines.h"

namespace deepfreeze {
namespace {

// A chain of eight instructions, which wait for each other; the processor overlaps several lines'.
__attribute__((target("sse4.2"))) void sum_lines(std::span<const std::byte* const> lines,
                                                 std::span<std::uint32_t> sums) {
  constexpr std::uint32_t kInversion = 0xffffffff;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::uint64_t state = kInversion;
    for (std::size_t at = 0; at < kCrcLineBytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, lines[i] + at, sizeof(word));
      state = _mm_crc32_u64(state, word);
    }
    sums[i] = static_cast<std::uint32_t>(state) ^ kInversion;
  }
}

}  // namespace

SumLines crc_lines_by_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0 ? sum_lines : nullptr;
}

}  // namespace deepfreeze
