// What the ranks of an attempt found of the bytes that they have alike: do they? For one thread.
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

  // By key; kDivergencesMax of them at most.
  [[nodiscard]] std::vector<Divergence> divergences() const;

 private:
  struct Copy {
    std::uint32_t rank = 0;
    std::uint32_t crc = 0;
  };
  // Key, offset, first byte, bytes. Boxes of one key don't overlap but where they are equal.
  using Place = std::tuple<std::string, Shape, std::uint64_t, std::uint64_t>;

  [[nodiscard]] static std::vector<std::uint32_t> outvoted(const std::vector<Copy>& copies);

  std::map<Place, std::vector<Copy>> copies_;
};

}  // namespace deepfreeze
