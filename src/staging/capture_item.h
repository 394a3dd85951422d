// What a capture copies. Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepfreeze {

// One contiguous source and its place in the data section.
struct CaptureItem {
  std::span<const std::byte> source;
  std::uint64_t offset = 0;
  // Which fence stands before its next change. 0: none does, it is copied before save() returns.
  std::uint32_t guard = 0;
};

// A part of one item, inside one block of the image.
struct CapturePiece {
  std::size_t item = 0;
  std::uint64_t offset = 0;  // in the data section
  std::uint64_t bytes = 0;
};

}  // namespace deepfreeze
