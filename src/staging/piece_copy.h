// How the bytes of one piece are moved. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "codec/crc32c_copy.h"

namespace deepfreeze {

// The checksum of the stored bytes, for a piece that is a whole block. A part of a block has none:
// the checksum covers the whole block, whose parts stay in the cache until the last has come.
using BlockCrc = std::optional<std::uint32_t>;

// A piece's place in the image, and its earlier contents.
struct PiecePlace {
  std::span<std::byte> bytes;
  bool is_block = false;  // the piece is a whole block of the image
  // If the place still holds an earlier copy: the checksum of its block then.
  BlockCrc old_block_crc = std::nullopt;
};

[[nodiscard]] inline BlockCrc crc_at(const std::vector<std::uint32_t>* crcs, std::uint64_t block) {
  return crcs != nullptr && block < crcs->size() ? BlockCrc((*crcs)[block]) : std::nullopt;
}

struct PieceCopy {
  BlockCrc crc;
  bool has_changed = true;  // from the earlier copy
};

// Bytes that equal the earlier copy are not copied again. The comparison ends at the first
// difference, so bytes that have changed cost no more than a copy.
[[nodiscard]] inline PieceCopy copy_piece_bytes(std::span<const std::byte> source,
                                                const PiecePlace& into) {
  if (into.old_block_crc && std::memcmp(into.bytes.data(), source.data(), source.size()) == 0) {
    return {.crc = into.is_block ? into.old_block_crc : std::nullopt, .has_changed = false};
  }
  if (into.is_block) return {.crc = copy_with_crc32c(source, into.bytes)};
  std::memcpy(into.bytes.data(), source.data(), source.size());
  return {.crc = std::nullopt};
}

}  // namespace deepfreeze
