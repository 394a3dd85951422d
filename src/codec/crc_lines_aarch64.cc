#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>

#include "codec/crc32c.h"
#include "codec/crc_lines.h"

namespace deepfreeze {
namespace {

// A chain of eight instructions, which wait for each other; the processor overlaps several lines'.
__attribute__((target("+crc"))) void sum_lines(std::span<const std::byte* const> lines,
                                               std::span<std::uint32_t> sums) {
  constexpr std::uint32_t kInversion = 0xffffffff;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::uint32_t state = kInversion;
    for (std::size_t at = 0; at < kCrcLineBytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, lines[i] + at, sizeof(word));
      state = __crc32cd(state, word);
    }
    sums[i] = state ^ kInversion;
  }
}

}  // namespace

// ARMv8.0 leaves the instruction to the maker of the processor; the kernel tells if it is there.
SumLines crc_lines_by_instruction() {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? sum_lines : nullptr;
}

}  // namespace deepfreeze
