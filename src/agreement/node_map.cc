#include "agreement/node_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/message.h"
#include "base/polling.h"
#include "base/random_id.h"
#include "base/scope_exit.h"
#include "base/try.h"
#include "manifest/node_marker.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

// A rank's directory, as rank 0 hears of it.
struct Seen {
  std::uint64_t digits = 0;
  std::string host;
  std::string path;
};

std::string encode_seen(const Result<NodeRecord>& record, const std::string& host,
                        const std::string& path) {
  MessageWriter message;
  message.status(record ? Status{} : std::unexpected(record.error()));
  return message.number(record ? record->node : 0).text(host).text(path).take();
}

Result<Seen> decode_seen(std::string_view bytes, std::size_t rank) {
  MessageReader message(bytes);
  const Status found = message.status();
  Seen seen;
  seen.digits = message.number<std::uint64_t>();
  seen.host = message.text();
  seen.path = message.text();
  DF_TRY_VOID(message.end());
  if (!found) return std::unexpected(of_rank(found.error(), rank));
  return seen;
}

// Rank by rank, so that nodes and their ranks are in order.
Result<std::vector<JobNode>> group(const std::vector<std::string>& given) {
  std::vector<JobNode> nodes;
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    DF_TRY(Seen seen, decode_seen(given[rank], rank));
    auto node = std::ranges::find(nodes, seen.digits, &JobNode::digits);
    if (node == nodes.end()) {
      nodes.push_back({seen.digits, std::move(seen.host), std::move(seen.path), {}});
      node = nodes.end() - 1;
    }
    node->ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return nodes;
}

std::string encode_nodes(const std::vector<JobNode>& nodes, std::uint64_t nonce) {
  MessageWriter message;
  message.number(nonce).number(static_cast<std::uint64_t>(nodes.size()));
  for (const JobNode& node : nodes) {
    message.number(node.digits).text(node.host).text(node.path);
    message.number(static_cast<std::uint64_t>(node.ranks.size()));
    for (const std::uint32_t rank : node.ranks) message.number(rank);
  }
  return message.take();
}

struct Found {
  std::vector<JobNode> nodes;
  std::uint64_t nonce = 0;
};

Result<Found> decode_nodes(std::string_view bytes) {
  constexpr std::size_t kNodeBytes = 4 * 8;
  MessageReader message(bytes);
  Found found;
  found.nonce = message.number<std::uint64_t>();
  found.nodes.resize(message.count(kNodeBytes));
  for (JobNode& node : found.nodes) {
    node.digits = message.number<std::uint64_t>();
    node.host = message.text();
    node.path = message.text();
    node.ranks.resize(message.count(sizeof(std::uint32_t)));
    for (std::uint32_t& rank : node.ranks) rank = message.number<std::uint32_t>();
  }
  DF_TRY_VOID(message.end());
  return found;
}

// A network file system may show a new file later to some machines.
Status await_presence(Vfs& vfs, std::uint64_t nonce, const JobNode& node,
                      std::chrono::milliseconds patience) {
  Polling polling(patience);
  do {
    DF_TRY(const bool is_seen, sees_presence(vfs, nonce));
    if (is_seen) return {};
  } while (polling.again());
  return fail(ErrorCode::kMismatch,
              fmt::format("{} has the {} of {} and is another directory: it was copied from there. "
                          "Delete {} in the copy",
                          vfs.path_of(""), kNodeFile, place_of(node), kNodeFile));
}

}  // namespace

NodeMap::NodeMap(std::vector<JobNode> nodes, std::uint32_t rank)
    : nodes_(std::move(nodes)), rank_(rank) {
  const auto own = std::ranges::find_if(nodes_, [&](const JobNode& node) {
    return std::ranges::find(node.ranks, rank_) != node.ranks.end();
  });
  own_ = static_cast<std::size_t>(own - nodes_.begin());
}

Result<NodeMap> NodeMap::find(RankGroup* ranks, Vfs& vfs, const std::string& host,
                              std::chrono::milliseconds patience) {
  const auto record = find_or_make_node(vfs, host);
  if (ranks == nullptr) {
    if (!record) return std::unexpected(record.error());
    return NodeMap({{record->node, host, vfs.path_of(""), {0}}}, 0);
  }
  DF_TRY(const std::string answer,
         ask_rank0(*ranks, "find nodes", encode_seen(record, host, vfs.path_of("")),
                   [](const std::vector<std::string>& given) -> Result<std::vector<std::string>> {
                     DF_TRY(const std::vector<JobNode> nodes, group(given));
                     return std::vector<std::string>(given.size(),
                                                     encode_nodes(nodes, random_id()));
                   }));
  DF_TRY(Found found, decode_nodes(answer));
  NodeMap map(std::move(found.nodes), ranks->rank());
  const bool leads = map.leads();
  const ScopeExit hide([&] {
    if (leads) std::ignore = hide_presence(vfs, found.nonce);  // else it is an old temporary file
  });
  DF_TRY_VOID(agree(ranks, "show nodes", leads ? show_presence(vfs, found.nonce) : Status{}));
  const Status seen = leads ? Status{} : await_presence(vfs, found.nonce, map.own(), patience);
  DF_TRY_VOID(agree(ranks, "see nodes", seen));
  return map;
}

std::string place_of(const JobNode& node) { return fmt::format("{}:{}", node.host, node.path); }

}  // namespace deepfreeze
