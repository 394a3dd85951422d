#include "support/sim_model.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace deepfreeze {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

// Data of the latest other file that reaches so far, removed ones included; else empty.
std::string_view old_data_for(const SimTree& tree, const SimWrite& write) {
  const std::uint64_t end = write.offset + write.bytes.size();
  for (auto entry = tree.rbegin(); entry != tree.rend(); ++entry) {
    const std::string_view content = entry->second.content;
    if (entry->first != write.inode && content.size() >= end) {
      return content.substr(write.offset, write.bytes.size());
    }
  }
  return {};
}

void apply_old_data(SimTree& tree, const SimWrite& write, const SimFate& fate) {
  const std::string old_data(old_data_for(tree, write));
  if (old_data.empty()) return;
  tree[write.inode].content.replace(write.offset + fate.prefix_bytes,
                                    old_data.size() - fate.prefix_bytes, old_data,
                                    fate.prefix_bytes);
}

void apply_write(SimInode& file, const SimWrite& write, const SimFate& fate) {
  const bool torn = fate.kind == SimFate::Kind::kTorn;
  const std::size_t arrived = torn ? fate.prefix_bytes : write.bytes.size();
  const std::size_t sized = torn && !fate.full_size ? arrived : write.bytes.size();
  if (sized == 0) return;
  if (write.offset + sized > file.content.size()) file.content.resize(write.offset + sized, '\0');
  file.content.replace(write.offset, arrived, write.bytes, 0, arrived);
}

// The inode is taken out of its old directory under whatever name it has there: if an earlier
// rename was lost, that is not `removed`.
void apply_naming(SimTree& tree, const SimNaming& naming) {
  if (!naming.removed.empty()) {
    std::erase_if(tree[naming.removed_from].entries,
                  [&](const auto& entry) { return entry.second == naming.inode; });
  }
  if (!naming.added.empty()) tree[naming.directory].entries[naming.added] = naming.inode;
}

void collect(const SimTree& tree, InodeId inode, SimTree& reached) {
  const auto [place, is_new] = reached.insert(*tree.find(inode));
  if (!is_new) return;
  for (const auto& [name, child] : place->second.entries) collect(tree, child, reached);
}

void describe(const SimTree& tree, InodeId inode, std::string& text) {
  const SimInode& node = tree.at(inode);
  if (!node.is_directory) {
    text += 'f' + std::to_string(node.content.size()) + ':' + node.content;
    return;
  }
  text += 'd' + std::to_string(node.entries.size()) + ':';
  for (const auto& [name, child] : node.entries) {
    text += name + '/';
    describe(tree, child, text);
  }
}

}  // namespace

std::string_view to_string(SimOperationKind kind) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "create", "write", "truncate",    "preallocate", "sync",    "mkdir",
      "rename", "link",  "remove file", "remove dir",  "sync dir"};
  return kNames.at(static_cast<std::size_t>(kind));
}

SimTree empty_sim_tree() {
  return {{kSimRoot, {.is_directory = true, .content = {}, .entries = {}}}};
}

std::vector<SimFate> fates_of(const SimChange& change) {
  std::vector<SimFate> fates = {{.kind = SimFate::Kind::kKept}, {.kind = SimFate::Kind::kLost}};
  const auto* write = std::get_if<SimWrite>(&change.what);
  if (write == nullptr) return fates;
  const std::uint64_t bytes = write->bytes.size();
  std::set<std::uint64_t> prefixes = {0};
  if (bytes > kSimSectorBytes) {
    const std::uint64_t last = (bytes - 1) / kSimSectorBytes * kSimSectorBytes;
    prefixes.insert({kSimSectorBytes, bytes / 2 / kSimSectorBytes * kSimSectorBytes, last});
  }
  for (const std::uint64_t prefix : prefixes) {
    fates.push_back({SimFate::Kind::kTorn, prefix, true});  // 0: size without data
    fates.push_back({SimFate::Kind::kTorn, prefix, true, true});
    if (prefix > 0) fates.push_back({SimFate::Kind::kTorn, prefix, false});
  }
  return fates;
}

void apply(SimTree& tree, const SimChange& change, const SimFate& fate) {
  if (fate.kind == SimFate::Kind::kLost) return;
  std::visit(Overloaded{[&](const SimWrite& write) {
                          apply_write(tree[write.inode], write, fate);
                          if (fate.old_data) apply_old_data(tree, write, fate);
                        },
                        [&](const SimTruncate& truncate) {
                          tree[truncate.inode].content.resize(truncate.bytes, '\0');
                        },
                        [&](const SimNaming& naming) { apply_naming(tree, naming); }},
             change.what);
}

bool changes_data_of(const SimChange& change, InodeId inode) {
  return std::visit(Overloaded{[&](const SimWrite& write) { return write.inode == inode; },
                               [&](const SimTruncate& cut) { return cut.inode == inode; },
                               [](const SimNaming&) { return false; }},
                    change.what);
}

bool changes_names_in(const SimChange& change, InodeId directory) {
  const auto* naming = std::get_if<SimNaming>(&change.what);
  return naming != nullptr && naming->directory == directory;
}

SimTree reachable(const SimTree& tree) {
  SimTree reached;
  collect(tree, kSimRoot, reached);
  return reached;
}

std::string fingerprint(const SimTree& tree) {
  std::string text;
  describe(tree, kSimRoot, text);
  return text;
}

}  // namespace deepfreeze
