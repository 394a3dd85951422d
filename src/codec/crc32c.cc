#include "codec/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#define DF_CRC_INSTRUCTION 1
#include <nmmintrin.h>
#else
#define DF_CRC_INSTRUCTION 0
#endif

namespace deepfreeze {
namespace {

// ISA-L takes the length as an int.
constexpr std::size_t kChunkBytesMax = 1 << 30;

#if DF_CRC_INSTRUCTION

bool has_crc_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

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

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) { return crc32c_extend(0, bytes); }

std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) {
  // ISA-L leaves the inversion before and after to its caller.
  std::uint32_t state = ~crc;
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(bytes.size(), kChunkBytesMax));
    // The C interface lacks const; it only reads.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(chunk.data()));
    state = crc32_iscsi(data, static_cast<int>(chunk.size()), state);
    bytes = bytes.subspan(chunk.size());
  }
  return ~state;
}

void crc32c_of_lines(std::span<const std::byte* const> lines, std::span<std::uint32_t> sums) {
#if DF_CRC_INSTRUCTION
  if (has_crc_instruction()) return sum_lines(lines, sums);
#endif
  for (std::size_t i = 0; i < lines.size(); ++i) sums[i] = crc32c({lines[i], kCrcLineBytes});
}

}  // namespace deepfreeze
