// The holders of every distinct box of the state: the ranks that have a copy of it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "deepfreeze/tensor.h"

namespace deepfreeze {

// The tensors of one rank, as accepted by check_spec(). Ranks with equal tables should point to the
// same table, which is then examined once.
struct RankState {
  const std::vector<TensorSpec>* tensors = nullptr;
  std::uint32_t node = 0;
};

// Ranks that have copies of the same boxes.
using GroupId = std::uint32_t;
// In place of a group: no other rank has a copy.
inline constexpr GroupId kNoCopies = std::numeric_limits<GroupId>::max();

// A box of a tensor that some ranks have alike, most often all of it.
struct HeldBox {
  const TensorSpec* spec = nullptr;  // as the first of them has it
  GroupId group = 0;
};

// Ranks that share one table.
struct TableUsers {
  const std::vector<TensorSpec>* tensors = nullptr;
  std::vector<std::uint32_t> ranks;  // ascending
  std::vector<std::uint32_t> boxes;  // by tensor: index into Holders::boxes
};

struct Holders {
  std::vector<TableUsers> tables;
  std::vector<HeldBox> boxes;                      // in the order of the first table that has them
  std::vector<std::vector<std::uint32_t>> groups;  // by GroupId: the ranks, by node, then rank
};

// kMismatch names the key, and two ranks that disagree on its dtype or its whole shape, or how the
// boxes of all do not make up the whole. kInvalidArgument: a key twice on one rank.
[[nodiscard]] Result<Holders> find_holders(std::span<const RankState> ranks);

}  // namespace deepfreeze
