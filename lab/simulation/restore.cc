#include "restore.h"

#include <algorithm>
#include <functional>

#include "ledger.h"
#include "platform.h"

namespace deepfreeze::simulation {
namespace {

// Few nodes read from all others, or from so many servers, at a time. More of them have one source
// each: together they load all links alike, and a flow for each pair would make millions.
constexpr std::uint64_t kSourcesMax = 8;

std::uint64_t sources_of(std::uint64_t nodes) { return nodes <= kSourcesMax + 1 ? kSourcesMax : 1; }

// All that the actor of a node does until it has its state.
using Work = std::function<void(Platform& platform, std::uint64_t node)>;

double play(const Scenario& scenario, const Work& work) {
  Ledger ledger({.ranks = scenario.ranks(), .nodes = scenario.machine.nodes, .saves = 0});
  Platform platform(scenario, ledger);
  for (std::uint64_t node = 0; node < scenario.machine.nodes; ++node) {
    platform.start("restore", node * scenario.machine.ranks_per_node,
                   [&platform, &work, node] { work(platform, node); });
  }
  platform.run();
  return platform.now();
}

std::vector<Source> spread(const std::vector<std::uint64_t>& places, std::uint64_t bytes) {
  std::vector<Source> found;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::uint64_t begin = bytes * i / places.size();
    found.push_back({.place = places[i], .bytes = bytes * (i + 1) / places.size() - begin});
  }
  return found;
}

// The restores of a job whose nodes have files of their own.
class NodeFiles {
 public:
  NodeFiles(const Scenario& scenario, std::uint64_t state_bytes,
            const std::vector<std::uint64_t>& shares)
      : scenario_(scenario),
        state_bytes_(state_bytes),
        bytes_(node_bytes(scenario, shares)),
        lost_(static_cast<std::uint64_t>(std::ranges::max_element(bytes_) - bytes_.begin())) {}

  [[nodiscard]] double near() const {
    return play(scenario_, [this](Platform& platform, std::uint64_t node) {
      platform.fetch(node, surviving(node, std::nullopt), 0);
    });
  }

  [[nodiscard]] double parity(const Protection& protection) const {
    const std::vector<Source> pieces = protection.pieces_of_lost(lost_);
    return play(scenario_, [this, &pieces](Platform& platform, std::uint64_t node) {
      Reads reads = surviving(node, lost_);
      if (scenario_.workload.sharded) {
        if (node == lost_) reads.disks.insert(reads.disks.end(), pieces.begin(), pieces.end());
        return platform.fetch(node, reads, 0);
      }
      for (const Source& piece : pieces) {  // a disk reads its pieces once, for all nodes
        (piece.place == node ? reads.disks : reads.memories).push_back(piece);
      }
      platform.fetch(node, reads, 0);
    });
  }

  [[nodiscard]] double flushed() const {
    return play(scenario_, [this](Platform& platform, std::uint64_t node) {
      Reads reads = surviving(node, lost_);
      if (node == lost_ || !scenario_.workload.sharded) {
        reads.servers = platform.stripes(first_rank(lost_), bytes_[lost_]);
      }
      platform.fetch(node, reads, 0);
    });
  }

  [[nodiscard]] double parallel() const {
    const std::uint64_t servers = scenario_.machine.parallel.servers;
    const std::uint64_t stripes = scenario_.ranks() * scenario_.machine.parallel.stripes;
    return play(scenario_, [&, this](Platform& platform, std::uint64_t node) {
      Reads reads;
      if (scenario_.workload.sharded) {
        reads.servers = platform.stripes(first_rank(node), bytes_[node]);
      } else {
        std::vector<std::uint64_t> places;
        const std::uint64_t count = std::min({servers, stripes, sources_of(bytes_.size())});
        for (std::uint64_t i = 0; i < count; ++i) {
          places.push_back((node * count + i) % std::min(servers, stripes));
        }
        reads.servers = spread(places, state_bytes_);
      }
      platform.fetch(node, reads, 0);
    });
  }

 private:
  [[nodiscard]] std::uint64_t first_rank(std::uint64_t node) const {
    return node * scenario_.machine.ranks_per_node;
  }

  // The bytes that a node reads of the files on all nodes; node `lost` has none.
  [[nodiscard]] Reads surviving(std::uint64_t node, std::optional<std::uint64_t> lost) const {
    Reads reads;
    const std::uint64_t own = node == lost ? 0 : bytes_[node];
    if (own > 0) reads.disks.push_back({.place = node, .bytes = own});
    if (scenario_.workload.sharded) return reads;
    std::vector<std::uint64_t> others;
    const std::uint64_t nodes = bytes_.size();
    const bool is_from_all = sources_of(nodes) >= nodes - 1;  // else a link stands for all others'
    for (std::uint64_t i = 1; i < nodes && others.size() < sources_of(nodes); ++i) {
      const std::uint64_t other = (node + i) % nodes;
      if (other != lost || !is_from_all) others.push_back(other);
    }
    const std::uint64_t gone = lost ? bytes_[*lost] : 0;
    reads.memories = spread(others, state_bytes_ - own - gone);
    return reads;
  }

  const Scenario& scenario_;
  std::uint64_t state_bytes_;
  std::vector<std::uint64_t> bytes_;  // by node
  std::uint64_t lost_;                // that with the most bytes
};

// Whole copies: each rank's own, or rank 0's, which passes it on.
double whole_copies(const Scenario& scenario, std::uint64_t state_bytes) {
  const std::uint64_t nodes = scenario.machine.nodes;
  const bool own_files = scenario.strategy == Strategy::kAllWrite;
  return play(scenario, [=, &scenario](Platform& platform, std::uint64_t node) {
    if (node > 0 && !own_files) return;
    const std::uint64_t rank = node * scenario.machine.ranks_per_node;
    platform.fetch(node, {.servers = platform.stripes(rank, state_bytes)}, 0);
    if (own_files || nodes == 1) return;
    // Broadcast in a chain, as fast as one link. A part for each node: rank 0's link is full, too.
    const std::uint64_t last = scenario.workload.sharded ? nodes - 1 : 1;
    for (std::uint64_t to = 1; to <= last; ++to) {
      const std::uint64_t bytes = scenario.workload.sharded ? state_bytes / nodes : state_bytes;
      platform.start("receive", to * scenario.machine.ranks_per_node, [&platform, to, bytes] {
        platform.fetch(to, {.memories = {{.place = 0, .bytes = bytes}}}, 0);
      });
    }
  });
}

}  // namespace

RestoreSeconds simulate_restores(const Scenario& scenario, std::uint64_t state_bytes,
                                 const std::vector<std::uint64_t>& shares,
                                 const Protection* protection) {
  if (scenario.strategy != Strategy::kDeepFreeze) {
    return {.parallel = whole_copies(scenario, state_bytes)};
  }
  const NodeFiles files(scenario, state_bytes, shares);
  if (scenario.storage == Place::kParallel) return {.parallel = files.parallel()};
  RestoreSeconds found{.near = files.near()};
  if (protection != nullptr) found.parity = files.parity(*protection);
  if (scenario.flush) {
    found.flushed = files.flushed();
    found.parallel = files.parallel();
  }
  return found;
}

}  // namespace deepfreeze::simulation
