// The tagged JSON tree of everything in a state that is not a tensor. docs/format.md lists the
// tags. The Python package encodes and decodes it; the core checks it and can walk it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

class TreeMemo;

inline constexpr std::size_t kTreeDepthMax = 512;
inline constexpr std::size_t kTreeBytesMax = 256 * 1024 * 1024;
inline constexpr std::size_t kTreeListBytesMax = 512 * 1024 * 1024;  // bounds the result of
                                                                     // walk_tree()

// One leaf of the tree, for people: `path` is dotted, like the keys of tensors; `kind` is the tag
// or "none", "bool", "int", "float", "str", and for empty containers "list" or "dict". `text` is
// the value or, if that is long, its beginning, length and CRC, so that different values have
// different texts.
struct TreeLeaf {
  std::string path;
  std::string kind;
  std::string text;
  bool operator==(const TreeLeaf&) const = default;
};

// An object of the state that contains the leaves below `path`; `type` is "module", "optimizer",
// "stateful", or a name that an adapter chose.
struct TreeObject {
  std::string path;
  std::string type;
  bool operator==(const TreeObject&) const = default;
};

// kCorrupt: not strict JSON, an unknown tag, or a member missing.
[[nodiscard]] Status check_tree(std::string_view tree);
// check_tree(), faster if `memo` knows a valid tree much like it. A valid tree is remembered.
[[nodiscard]] Status check_tree(std::string_view tree, TreeMemo& memo);
// Lists the leaves in the order of the text. Also kCorrupt if the list would exceed
// kTreeListBytesMax.
[[nodiscard]] Result<std::vector<TreeLeaf>> walk_tree(std::string_view tree,
                                                      std::vector<TreeObject>* objects = nullptr);

}  // namespace deepfreeze
