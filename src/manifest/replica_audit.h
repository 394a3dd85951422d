// Compares the checksums that the ranks of an attempt took of the bytes they have copies of. For
// one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

class ReplicaAudit {
 public:
  void add(std::uint32_t rank, std::span<const AuditRecord> records);

  // Sorted by key; kDivergencesMax at most.
  [[nodiscard]] std::vector<Divergence> divergences() const;

 private:
  struct Copy {
    std::uint32_t rank = 0;
    std::uint32_t crc = 0;
  };
  // Key, offset, first byte, bytes. Two boxes of one key either are equal or do not overlap.
  using Place = std::tuple<std::string, Shape, std::uint64_t, std::uint64_t>;

  [[nodiscard]] static std::vector<std::uint32_t> outvoted(const std::vector<Copy>& copies);

  std::map<Place, std::vector<Copy>> copies_;
};

}  // namespace deepfreeze
