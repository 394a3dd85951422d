// Everything about a save that is known before a byte is copied. Pure.
#pragma once

#include <vector>

#include "deepfreeze/checkpointer.h"
#include "format/shard_header.h"
#include "staging/capture_session.h"

namespace deepfreeze {

struct SavePlan {
  ShardHeader header;              // block_crcs all zero until captured
  std::uint64_t header_bytes = 0;  // of its encoding
  std::vector<CaptureItem> items;  // in file order
};

// kInvalidArgument or kEncode names the key or the place in the objects. Before anything is
// written: plan_save() expects a request that passed.
[[nodiscard]] Status check_request(const SaveRequest& request);

// Where the tensors lie; no header yet.
[[nodiscard]] Result<SavePlan> plan_capture(const TensorTable& tensors);

[[nodiscard]] Result<SavePlan> plan_save(const SaveRequest& request, const Identity& identity,
                                         const std::optional<ParentPoint>& parent);

}  // namespace deepfreeze
