// The value ranges of a save's tensors, found slab by slab behind the capture: training waits for
// none of it. Belongs to one thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "arena/image.h"
#include "save/save_plan.h"
#include "tensor/value_range.h"

namespace deepfreeze {

class RangeScan {
 public:
  // Borrows the table.
  RangeScan(const TablePlan& table, const Image& image);

  // The slab's bytes are final, and stay until it returns. Each is taken once, in any order.
  void take(std::size_t slab);

  // The ranges of a file's floating-point tensors, in its order; complete once all slabs were
  // taken.
  [[nodiscard]] std::vector<ValueRange> ranges_of(std::size_t file) const;

 private:
  const TablePlan& table_;
  const Image image_;
  std::vector<std::vector<ValueRange>> ranges_;  // by file, of all its entries
};

}  // namespace deepfreeze
