// The checksum of many bytes of data, from those of their blocks. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "format/layout.h"

namespace deepfreeze {

// `block_crcs` are those of all blocks of the data section. `data` begins with a block, and ends
// with one or with the section.
[[nodiscard]] std::uint32_t crc_of_blocks(std::span<const std::uint32_t> block_crcs, Extent data);

}  // namespace deepfreeze
