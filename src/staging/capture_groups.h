// The items of a capture by the fence that guards them, and the queues of their copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "staging/capture_session.h"
#include "staging/copy_lane.h"

namespace deepfreeze {

struct CaptureGroup {
  std::vector<std::size_t> items;        // of host memory
  std::atomic<std::uint64_t> unread{0};  // pieces whose source may still be read
  std::atomic<bool> released{false};
};

// The groups in the order of guards, without items that lie behind the image.
[[nodiscard]] std::vector<std::unique_ptr<CaptureGroup>> make_groups(const CaptureSpec& spec);

// A lane for each group; one for all of them in ring mode, because slabs must fill in order there.
// The lanes borrow the items.
[[nodiscard]] std::vector<std::unique_ptr<CopyLane>> make_lanes(
    const CaptureSpec& spec, const std::vector<std::unique_ptr<CaptureGroup>>& groups);

}  // namespace deepfreeze
