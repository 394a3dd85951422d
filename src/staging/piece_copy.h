// How the bytes of one piece are moved. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "codec/crc32c_copy.h"

namespace deepfreeze {

// The checksum of the stored bytes, for a piece that is a whole block. A part of a block has none:
// the checksum covers the whole block, whose parts stay in the cache until the last has come.
using BlockCrc = std::optional<std::uint32_t>;

[[nodiscard]] inline BlockCrc copy_piece_bytes(std::span<const std::byte> source,
                                               std::span<std::byte> into, bool is_block) {
  if (is_block) return copy_with_crc32c(source, into);
  std::memcpy(into.data(), source.data(), source.size());
  return std::nullopt;
}

}  // namespace deepfreeze
