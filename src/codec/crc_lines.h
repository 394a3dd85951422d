// Checksums of lines by the processor's own instruction for CRC-32C, if it has one. There is one
// .cc for each kind of processor; CMakeLists.txt chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepfreeze {

using SumLines = void (*)(std::span<const std::byte* const> lines, std::span<std::uint32_t> sums);

// Does the work of crc32c_of_lines(). Null if this processor lacks the instruction.
[[nodiscard]] SumLines crc_lines_by_instruction();

}  // namespace deepfreeze
