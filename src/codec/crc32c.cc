#include "codec/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

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

}  // namespace deepfreeze
