// The nodes of a job (docs/decisions/0026, step O1): ranks that see one near directory. Immutable.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deepfreeze/ranks.h"
#include "storage/vfs.h"

namespace deepfreeze {

struct JobNode {
  std::uint64_t digits = 0;  // of its directory (manifest/node_marker.h)
  std::string host;          // of its leader, as the next: for messages
  std::string path;
  std::vector<std::uint32_t> ranks;  // ascending; the first is its leader
  bool operator==(const JobNode&) const = default;
};

class NodeMap {
 public:
  // Collective; without a group the caller is the only rank. `vfs` is the caller's near directory,
  // which gets digits if it has none. An error is every rank's: that of the first rank whose
  // directory has no digits; kMismatch if a rank does not see within `patience` the file that the
  // leader of its node has made: its directory is a copy.
  [[nodiscard]] static Result<NodeMap> find(RankGroup* ranks, Vfs& vfs, const std::string& host,
                                            std::chrono::milliseconds patience = kSeeMax);
  static constexpr std::chrono::milliseconds kSeeMax{5'000};

  // By leader. The first is that of rank 0: its directory decides.
  [[nodiscard]] std::span<const JobNode> nodes() const { return nodes_; }
  [[nodiscard]] const JobNode& own() const { return nodes_[own_]; }
  [[nodiscard]] bool is_one() const { return nodes_.size() == 1; }
  [[nodiscard]] bool leads() const { return own().ranks.front() == rank_; }
  [[nodiscard]] bool decides() const { return own_ == 0; }

 private:
  NodeMap(std::vector<JobNode> nodes, std::uint32_t rank);

  std::vector<JobNode> nodes_;
  std::uint32_t rank_ = 0;
  std::size_t own_ = 0;
};

// "host7:/nvme/run"
[[nodiscard]] std::string place_of(const JobNode& node);

}  // namespace deepfreeze
