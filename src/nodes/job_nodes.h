// Which ranks of a job are a node. Pure; a value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepfreeze {

class JobNodes {
 public:
  // The ranks of each node, ascending; together they are 0 to world size - 1.
  explicit JobNodes(std::vector<std::vector<std::uint32_t>> nodes);

  [[nodiscard]] std::uint32_t world_size() const {
    return static_cast<std::uint32_t>(leader_of_.size());
  }
  [[nodiscard]] std::span<const std::uint32_t> leaders() const { return leaders_; }  // ascending
  [[nodiscard]] std::uint32_t leader_of(std::uint32_t rank) const { return leader_of_.at(rank); }
  [[nodiscard]] bool is_leader(std::uint32_t rank) const {
    return rank < world_size() && leader_of_[rank] == rank;
  }
  // All ranks of the node that this rank leads; empty if it leads none.
  [[nodiscard]] std::vector<std::uint32_t> ranks_with(std::uint32_t leader) const;

 private:
  std::vector<std::uint32_t> leader_of_;  // by rank
  std::vector<std::uint32_t> leaders_;
};

}  // namespace deepfreeze
