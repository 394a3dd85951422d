#include "save/audit_scan.h"

#include <algorithm>

#include "codec/crc32c.h"

namespace deepfreeze {

void AuditScan::take(std::size_t slab) {
  const std::span<const CaptureItem> copies = plan_.audit_items();
  const std::uint64_t begin = slab * image_.slab_bytes();
  auto copy = std::ranges::lower_bound(copies, begin, {}, &CaptureItem::offset);
  for (; copy != copies.end() && copy->offset < begin + image_.slab_bytes(); ++copy) {
    crcs_[static_cast<std::size_t>(copy - copies.begin())] =
        crc32c(image_.at(copy->offset, copy->source.size()));
  }
}

}  // namespace deepfreeze
