// Which nodes protect each other, and which bytes each of them reads for that: the product's own
// groups and layout (src/protect). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "platform.h"
#include "protect/parity_groups.h"
#include "scenario.h"

namespace deepfreeze::simulation {

// Bytes that a node has, by node.
[[nodiscard]] std::vector<std::uint64_t> node_bytes(const Scenario& scenario,
                                                    const std::vector<std::uint64_t>& shares);

class Protection {
 public:
  // Nothing if the scenario asks for none, and on one node, which the product does not protect
  // either. Errors: those of group_nodes(), such as fewer nodes than it needs.
  [[nodiscard]] static Result<std::optional<Protection>> make(
      const Scenario& scenario, const std::vector<std::uint64_t>& shares);

  [[nodiscard]] const std::vector<std::vector<std::size_t>>& groups() const { return groups_; }
  [[nodiscard]] std::size_t parity() const { return parity_; }
  [[nodiscard]] const std::vector<std::size_t>& group_of(std::uint64_t node) const {
    return groups_[group_of_[node]];
  }

  // The reads for the parity piece `row` of a node: a chunk of each member that has data there.
  [[nodiscard]] std::vector<Source> chunks(std::uint64_t node, std::size_t row) const;
  [[nodiscard]] std::uint64_t piece_bytes(std::uint64_t node) const;
  // The reads that give the bytes of a lost node: of each chunk as many pieces as it has data,
  // spread over the others of the group.
  [[nodiscard]] std::vector<Source> pieces_of_lost(std::uint64_t lost) const;

 private:
  std::vector<std::vector<std::size_t>> groups_;
  std::size_t parity_ = 0;
  std::vector<std::size_t> group_of_;  // by node
  std::vector<std::uint64_t> bytes_;   // by node
};

}  // namespace deepfreeze::simulation
