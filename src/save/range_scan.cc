#include "save/range_scan.h"

#include <algorithm>

namespace deepfreeze {
namespace {

// The part of `section`, which begins at `begin`, that lies in `extent`. Tensors begin at multiples
// of their element's size, and so do slabs: no element is divided.
std::span<const std::byte> part_in(const Extent& extent, std::uint64_t begin,
                                   std::span<const std::byte> section) {
  const std::uint64_t first = std::max(extent.begin, begin) - begin;
  const std::uint64_t last = std::min<std::uint64_t>(extent.end - begin, section.size());
  return section.subspan(first, last - first);
}

}  // namespace

RangeScan::RangeScan(const TablePlan& table, const Image& image) : table_(table), image_(image) {
  for (const TableText& file : table.files) ranges_.emplace_back(file.entries.size());
}

void RangeScan::take(std::size_t slab) {
  const std::size_t file = image_.section_of(slab);
  const std::uint64_t begin = slab * image_.slab_bytes() - image_.sections()[file].begin;
  const std::span<const std::byte> bytes = image_.slab(slab);
  const std::vector<ShardEntry>& entries = table_.files[file].entries;
  const auto ends_behind = [begin](const ShardEntry& entry) { return entry.extent.end > begin; };
  auto entry = std::ranges::partition_point(entries, std::not_fn(ends_behind));
  for (; entry != entries.end() && entry->extent.begin < begin + bytes.size(); ++entry) {
    ValueRange& range = ranges_[file][static_cast<std::size_t>(entry - entries.begin())];
    range = joined(range, value_range(entry->spec.dtype, part_in(entry->extent, begin, bytes)));
  }
}

std::vector<ValueRange> RangeScan::ranges_of(std::size_t file) const {
  std::vector<ValueRange> ranges;
  if (file >= ranges_.size()) return ranges;  // of a piece of the tree only
  for (std::size_t i = 0; i < ranges_[file].size(); ++i) {
    if (is_floating_point(table_.files[file].entries[i].spec.dtype)) {
      ranges.push_back(ranges_[file][i]);
    }
  }
  return ranges;
}

}  // namespace deepfreeze
