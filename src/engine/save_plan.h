// Everything about a save that is known before a byte is copied.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "deepfreeze/checkpointer.h"
#include "format/header_parts.h"
#include "staging/capture_session.h"

namespace deepfreeze {

// What saves of the same tensors, at whatever addresses, have in common.
struct TablePlan {
  TableText text;
  std::vector<std::size_t> order;  // of each entry, its place in the request's table
};

struct SavePlan {
  std::shared_ptr<const TablePlan> table;
  std::vector<CaptureItem> items;  // in file order
  // Missing in the plan of a capture that begins before its save.
  std::shared_ptr<const TreeText> tree;
  Identity identity;
  Annotations annotations;
  std::uint64_t header_bytes = 0;

  [[nodiscard]] std::uint64_t data_bytes() const { return table->text.data_bytes; }
  [[nodiscard]] HeaderParts header() const {
    return {.identity = identity, .annotations = annotations, .tree = *tree, .table = table->text};
  }
};

// Plans the saves of one run. What was found out for the last one is not found out again where
// names, dtypes, shapes and the state tree are the same. For the caller's thread.
class SavePlanner {
 public:
  // kInvalidArgument or kEncode names the key or the place in the objects.
  [[nodiscard]] Status accept(const SaveRequest& request);
  [[nodiscard]] Status accept(const TensorTable& tensors);

  // Of what was accepted last.
  [[nodiscard]] SavePlan plan_capture(const TensorTable& tensors) const;
  // kInvalidArgument where the header would be larger than readers take.
  [[nodiscard]] Result<SavePlan> plan_save(const SaveRequest& request, const Identity& identity,
                                           const std::optional<ParentPoint>& parent) const;

 private:
  [[nodiscard]] Status accept_tree(const std::string& objects);

  std::shared_ptr<const TablePlan> table_;  // null before the first; saves in flight share them
  std::shared_ptr<const TreeText> tree_;
};

}  // namespace deepfreeze
