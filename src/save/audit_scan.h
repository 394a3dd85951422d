// Computes, slab by slab, the checksums of the bytes that a save captures only to compare them with
// other ranks' copies. Belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arena/image.h"
#include "save/save_plan.h"

namespace deepfreeze {

class AuditScan {
 public:
  // Borrows the plan.
  AuditScan(const SavePlan& plan, const Image& image)
      : plan_(plan), image_(image), crcs_(plan.audit.size()) {}

  // Else it is a slab of a file.
  [[nodiscard]] bool has(std::size_t slab) const {
    return image_.section_of(slab) >= plan_.file_count();
  }
  // The slab's bytes are final, and stay until it returns. Each is taken once, in any order.
  void take(std::size_t slab);

  // The checksums of SavePlan::audit; complete once all slabs were taken.
  [[nodiscard]] std::span<const std::uint32_t> crcs() const { return crcs_; }

 private:
  const SavePlan& plan_;
  const Image image_;
  std::vector<std::uint32_t> crcs_;
};

}  // namespace deepfreeze
