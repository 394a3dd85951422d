// How what lies on devices is dealt out: batches of copies, each with one event behind it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "staging/capture_item.h"
#include "staging/image.h"

namespace deepfreeze {

// Of a batch, where no place in the image must be waited for: at least so many, and of a large
// image so many that there are not many batches. An event costs as much as a small copy, and our
// streams take only so many of both (CudaDevice::kLanes).
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
  // By group: its batches, in the order in which they are copied. In a ring, where slabs must fill
  // in order, all are of the first.
  std::vector<std::vector<std::size_t>> of_group;
  // By group, device and lane: the batches behind which the group's sources are read.
  std::vector<std::map<std::pair<std::int32_t, std::size_t>, std::size_t>> last;
};

// Of those items that are on devices.
[[nodiscard]] DevicePlan plan_batches(std::span<const CaptureItem> items, const Image& image,
                                      std::uint32_t group_count);

}  // namespace deepfreeze
