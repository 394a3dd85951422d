// Divides the items on devices into batches of copies, each followed by one event. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "arena/capture_item.h"
#include "arena/image.h"

namespace deepfreeze {

// The size of a batch if no place in the image must be waited for: at least kBatchSlabs, and more
// for a large image, so that there are about kBatchesWanted batches. An event costs as much as a
// small copy, and our streams hold only so many of both (CudaDevice::kLanes).
inline constexpr std::uint64_t kBatchSlabs = 8;
inline constexpr std::uint64_t kBatchesWanted = 128;

// Parts of items of one device, inside one window of the image.
struct DeviceBatch {
  std::int32_t device = kHostMemory;
  std::uint64_t slab = 0;  // the first of its window, which in a ring is one slab
  std::size_t lane = 0;    // of the device, in turn
  std::vector<CapturePiece> parts;
};

struct DevicePlan {
  std::vector<DeviceBatch> batches;
  // For each group its batches, in the order in which they are copied. In a ring, in which slabs
  // must fill in order, all belong to the first group.
  std::vector<std::vector<std::size_t>> of_group;
  // For each group, device and lane: the batch after which the group's sources have been read.
  std::vector<std::map<std::pair<std::int32_t, std::size_t>, std::size_t>> last;
};

// Plans the copies of the items that are on devices.
[[nodiscard]] DevicePlan plan_batches(std::span<const CaptureItem> items, const Image& image,
                                      std::uint32_t group_count);

}  // namespace deepfreeze
