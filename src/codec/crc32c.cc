#include "codec/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "codec/crc_lines.h"

namespace deepfreeze {
namespace {

// ISA-L takes the length as an int.
constexpr std::size_t kChunkBytesMax = 1 << 30;

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
  static const SumLines by_instruction = crc_lines_by_instruction();
  if (by_instruction != nullptr) return by_instruction(lines, sums);
  for (std::size_t i = 0; i < lines.size(); ++i) sums[i] = crc32c({lines[i], kCrcLineBytes});
}

}  // namespace deepfreeze
