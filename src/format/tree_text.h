// The state tree as the headers of a save hold it: a JSON text within a JSON string. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

struct TreeText {
  std::string tree;                  // whole
  std::vector<std::string> members;  // of the metadata, by file; none if there is no tree
};

// Splits the tree into members of at most `bytes_max` bytes of it. kInvalidArgument if it is too
// large or not UTF-8; whether it is a valid tree is not checked.
[[nodiscard]] Result<TreeText> write_tree(std::string tree, std::uint64_t bytes_max);

// The same text. Only the part that differs from the one of `last` is escaped anew, if each fits
// one member: between two saves of a run that is a few numbers.
[[nodiscard]] Result<TreeText> rewrite_tree(std::string tree, const TreeText& last,
                                            std::uint64_t bytes_max);

}  // namespace deepfreeze
