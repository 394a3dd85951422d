#include "staging/capture_groups.h"

#include <algorithm>
#include <utility>

namespace deepfreeze {
namespace {

bool lies_inside(const CaptureItem& item, std::uint64_t end) {
  return item.offset <= end && item.source.size() <= end - item.offset;
}

}  // namespace

std::vector<std::unique_ptr<CaptureGroup>> make_groups(const CaptureSpec& spec) {
  std::uint32_t count = 1;
  for (const CaptureItem& item : spec.items) count = std::max(count, item.guard + 1);
  std::vector<std::unique_ptr<CaptureGroup>> groups(count);
  for (auto& group : groups) group = std::make_unique<CaptureGroup>();
  for (std::size_t i = 0; i < spec.items.size(); ++i) {
    if (!lies_inside(spec.items[i], spec.image.end())) continue;
    if (spec.items[i].device != kHostMemory) continue;
    groups[spec.items[i].guard]->items.push_back(i);
  }
  return groups;
}

std::vector<std::unique_ptr<CopyLane>> make_lanes(
    const CaptureSpec& spec, const std::vector<std::unique_ptr<CaptureGroup>>& groups) {
  std::vector<std::unique_ptr<CopyLane>> lanes;
  const auto add = [&](std::vector<std::size_t> items) {
    lanes.push_back(std::make_unique<CopyLane>(spec.items, std::move(items), spec.block_bytes));
  };
  std::vector<std::size_t> all;
  for (const auto& group : groups) {
    if (!spec.image.is_ring()) {
      add(group->items);
    } else {
      all.insert(all.end(), group->items.begin(), group->items.end());
    }
  }
  std::ranges::sort(all);  // items are in file order
  if (spec.image.is_ring()) add(std::move(all));
  return lanes;
}

}  // namespace deepfreeze
