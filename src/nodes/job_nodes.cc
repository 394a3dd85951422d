#include "nodes/job_nodes.h"

#include <algorithm>

namespace deepfreeze {

JobNodes::JobNodes(std::vector<std::vector<std::uint32_t>> nodes) {
  std::size_t count = 0;
  for (const auto& ranks : nodes) count += ranks.size();
  leader_of_.resize(count);
  for (const auto& ranks : nodes) {
    leaders_.push_back(ranks.front());
    for (const std::uint32_t rank : ranks) leader_of_.at(rank) = ranks.front();
  }
  std::ranges::sort(leaders_);
}

std::vector<std::uint32_t> JobNodes::ranks_with(std::uint32_t leader) const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < world_size(); ++rank) {
    if (leader_of_[rank] == leader) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace deepfreeze
