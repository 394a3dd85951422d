// node.json: the digits by which a near directory is known among the nodes of a job (decision
// 0026). It belongs to the directory, not to the run in it, and is never copied to a tier. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::string_view kNodeFile = "node.json";

struct NodeRecord {
  std::uint64_t node = 0;
  std::string host;  // of the process that made it, for messages
  bool operator==(const NodeRecord&) const = default;
};

[[nodiscard]] std::string encode_node(const NodeRecord& record);
[[nodiscard]] Result<NodeRecord> decode_node(std::string_view text);

}  // namespace deepfreeze
