#include "manifest/replica_audit.h"

#include <algorithm>
#include <set>

#include "format/records.h"

namespace deepfreeze {

void ReplicaAudit::add(std::uint32_t rank, std::span<const AuditRecord> records) {
  for (const AuditRecord& record : records) {
    copies_[{record.key, record.offset, record.first_byte, record.bytes}].push_back(
        {rank, record.crc});
  }
}

// The ranks whose checksum differs from the majority's; all ranks if there is no majority.
std::vector<std::uint32_t> ReplicaAudit::outvoted(const std::vector<Copy>& copies) {
  std::map<std::uint32_t, std::size_t> votes;
  for (const Copy& copy : copies) ++votes[copy.crc];
  std::vector<std::uint32_t> ranks;
  for (const Copy& copy : copies) {
    if (2 * votes[copy.crc] <= copies.size()) ranks.push_back(copy.rank);
  }
  return ranks;
}

std::vector<Divergence> ReplicaAudit::divergences() const {
  std::map<std::string_view, std::set<std::uint32_t>> ranks_of;
  for (const auto& [place, copies] : copies_) {
    const std::vector<std::uint32_t> ranks = outvoted(copies);
    if (!ranks.empty()) ranks_of[std::get<0>(place)].insert(ranks.begin(), ranks.end());
  }
  std::vector<Divergence> found;
  for (const auto& [key, ranks] : ranks_of) {
    if (found.size() == kDivergencesMax) break;
    found.push_back({.key = std::string(key), .ranks = {ranks.begin(), ranks.end()}});
  }
  return found;
}

}  // namespace deepfreeze
