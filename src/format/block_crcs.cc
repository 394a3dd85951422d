#include "format/block_crcs.h"

#include <algorithm>

#include "codec/crc32c.h"

namespace deepfreeze {

std::uint32_t crc_of_blocks(std::span<const std::uint32_t> block_crcs, Extent data) {
  std::uint32_t crc = 0;
  for (std::uint64_t at = data.begin; at < data.end; at += kBlockBytes) {
    crc = crc32c_combine(crc, block_crcs[at / kBlockBytes], std::min(kBlockBytes, data.end - at));
  }
  return crc;
}

}  // namespace deepfreeze
