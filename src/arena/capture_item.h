// The items that a capture copies. Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deepfreeze/device.h"

namespace deepfreeze {

// One contiguous source and its place in the data section.
struct CaptureItem {
  std::span<const std::byte> source;
  std::uint64_t offset = 0;
  // The fence that protects its next change; 0: none, it is copied before save() returns.
  std::uint32_t guard = 0;
  // The place of `source`; on a device it is an address there, which host code cannot read.
  std::int32_t device = kHostMemory;
};

// A part of one item: for a thread's copy inside one block of the image, for a device's inside some
// slabs.
struct CapturePiece {
  std::size_t item = 0;
  std::uint64_t offset = 0;  // in the data section
  std::uint64_t bytes = 0;
};

}  // namespace deepfreeze
