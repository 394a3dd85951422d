// The parts of a SimDisk: a tree of inodes, and changes to it that may or may not arrive. Plain
// values, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace deepfreeze {

using InodeId = std::uint64_t;
inline constexpr InodeId kSimRoot = 0;
inline constexpr std::size_t kSimSectorBytes = 512;  // a device writes a sector whole or not at all

enum class SimOperationKind : std::uint8_t {
  kCreate,
  kWrite,
  kTruncate,
  kPreallocate,
  kSync,
  kMakeDir,
  kRename,
  kLink,
  kRemoveFile,
  kRemoveDir,
  kSyncDir,
};
[[nodiscard]] std::string_view to_string(SimOperationKind kind);

struct SimOperation {
  std::size_t index = 0;
  SimOperationKind kind = SimOperationKind::kCreate;
  std::string name;
  std::string target;  // the new name of a rename or a link
};

struct SimInode {
  bool is_directory = false;
  std::string content;                     // of a file
  std::map<std::string, InodeId> entries;  // of a directory
};
using SimTree = std::map<InodeId, SimInode>;
[[nodiscard]] SimTree empty_sim_tree();  // the root alone

struct SimWrite {
  InodeId inode = 0;
  std::uint64_t offset = 0;
  std::string bytes;
};
struct SimTruncate {
  InodeId inode = 0;
  std::uint64_t bytes = 0;
};
// Takes `removed` out of one directory and puts `added` into another, at once; either is empty if
// nothing is removed (create) or added (remove). Pending until `directory` is synced.
struct SimNaming {
  InodeId directory = 0;
  InodeId removed_from = 0;
  std::string removed = {};
  std::string added = {};
  InodeId inode = 0;
};

struct SimChange {
  std::size_t operation = 0;  // index in the log
  std::variant<SimWrite, SimTruncate, SimNaming> what;
};

// The effect of a power cut on one pending change.
struct SimFate {
  enum class Kind : std::uint8_t { kKept, kLost, kTorn } kind = Kind::kKept;
  // Torn writes: so much of the data arrived, and the file's size or only the data's end.
  std::uint64_t prefix_bytes = 0;
  bool full_size = false;
  // The lost part is not zeros but has bytes that another file has, or had, at that place: a file
  // system may give a freed extent out again.
  bool old_data = false;
};

// The fates of a change, kept and lost first.
[[nodiscard]] std::vector<SimFate> fates_of(const SimChange& change);
void apply(SimTree& tree, const SimChange& change, const SimFate& fate);
[[nodiscard]] bool changes_data_of(const SimChange& change, InodeId inode);
[[nodiscard]] bool changes_names_in(const SimChange& change, InodeId directory);

// Drops the inodes that no name leads to.
[[nodiscard]] SimTree reachable(const SimTree& tree);
// Names, kinds and contents in one string: equal for trees that a reader can't tell apart.
[[nodiscard]] std::string fingerprint(const SimTree& tree);

// The states of SimDisk::for_each_crash_image.
struct SimImage {
  SimTree tree;
  std::string label;
};
using SimImageVisitor = std::function<void(SimImage)>;
struct SimCrash {
  const SimTree& durable;
  const std::vector<SimChange>& pending;
  const std::vector<SimOperation>& log;
};
struct SimImageSearch {
  std::size_t limit = 0;  // states at most
  std::uint64_t seed = 0;
};
void for_each_crash_tree(const SimCrash& crash, const SimImageSearch& search,
                         const SimImageVisitor& visit);

}  // namespace deepfreeze
