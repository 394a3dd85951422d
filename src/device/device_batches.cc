#include "device/device_batches.h"

#include <algorithm>
#include <tuple>

#include "base/checked_math.h"
#include "device/cuda_device.h"

namespace deepfreeze {
namespace {

class Planner {
 public:
  Planner(std::span<const CaptureItem> items, const Image& image, std::uint32_t group_count)
      : items_(items),
        is_ring_(image.is_ring()),
        window_slabs_(image.is_ring() ? 1 : window_slabs(image.slab_count())),
        window_bytes_(window_slabs_ * image.slab_bytes()) {
    plan_.of_group.resize(group_count);
    plan_.last.resize(group_count);
  }

  [[nodiscard]] DevicePlan run(std::uint64_t end) {
    std::vector<CapturePiece> parts;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].device != kHostMemory && items_[i].offset < end) cut(i, parts);
    }
    // No two pieces begin at one offset: no order is left to the algorithm.
    std::ranges::sort(parts, {}, [this](const CapturePiece& part) { return order(part); });
    for (const CapturePiece& part : parts) add(part);
    return std::move(plan_);
  }

 private:
  static std::uint64_t window_slabs(std::uint64_t slab_count) {
    return std::max(kBatchSlabs, ceil_div(slab_count, kBatchesWanted));
  }

  // In a ring by place alone; else the pieces of a group, and of a device, stay together.
  [[nodiscard]] std::tuple<std::uint32_t, std::int32_t, std::uint64_t> order(
      const CapturePiece& part) const {
    const CaptureItem& item = items_[part.item];
    return is_ring_ ? std::tuple(0U, 0, part.offset)
                    : std::tuple(item.guard, item.device, part.offset);
  }

  void cut(std::size_t index, std::vector<CapturePiece>& parts) const {
    const CaptureItem& item = items_[index];
    const std::uint64_t end = item.offset + item.source.size();
    for (std::uint64_t at = item.offset; at < end;) {
      const std::uint64_t next = std::min(end, (at / window_bytes_ + 1) * window_bytes_);
      parts.push_back({.item = index, .offset = at, .bytes = next - at});
      at = next;
    }
  }

  void add(const CapturePiece& part) {
    const CaptureItem& item = items_[part.item];
    const std::uint32_t queue = is_ring_ ? 0 : item.guard;
    const std::uint64_t slab = part.offset / window_bytes_ * window_slabs_;
    auto& own = plan_.of_group[queue];
    const bool fits = !own.empty() && plan_.batches.back().device == item.device &&
                      plan_.batches.back().slab == slab;
    if (!fits) {
      own.push_back(plan_.batches.size());
      const std::size_t lane = dealt_[item.device]++ % CudaDevice::kLanes;
      plan_.batches.push_back({.device = item.device, .slab = slab, .lane = lane, .parts = {}});
    }
    DeviceBatch& batch = plan_.batches.back();
    batch.parts.push_back(part);
    plan_.last[item.guard][{batch.device, batch.lane}] = plan_.batches.size() - 1;
  }

  const std::span<const CaptureItem> items_;
  const bool is_ring_;
  const std::uint64_t window_slabs_;
  const std::uint64_t window_bytes_;
  std::map<std::int32_t, std::size_t> dealt_;  // batches, by device
  DevicePlan plan_;
};

}  // namespace

DevicePlan plan_batches(std::span<const CaptureItem> items, const Image& image,
                        std::uint32_t group_count) {
  return Planner(items, image, group_count).run(image.end());
}

}  // namespace deepfreeze
