// Chooses the bytes that a rank compares in one save, out of those of which several ranks have
// copies: all ranks choose the same bytes, and within a given number of saves all of them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/holders.h"

namespace deepfreeze {

// A piece is compared as a whole, and never crosses a multiple of this size within its tensor.
inline constexpr std::uint64_t kAuditPieceBytes = 1024 * 1024;

// Bounds the header's text about the pieces of one save, even if each has the longest key.
inline constexpr std::uint64_t kAuditTextBytesMax = 400'000;

// An upper bound for a header's text about one piece of that tensor.
[[nodiscard]] std::uint64_t audit_text_bytes(const TensorSpec& spec);

// All ranks have equal values here, except for the groups, which are those of SharePlan.
struct AuditPlan {
  // All bytes are compared within this many saves; 0: nothing is compared. A group takes more saves
  // if a header would have no room for its pieces: if 100 saves are wanted and keys have 60 bytes,
  // that happens from 60 GB or 240,000 tensors on.
  std::uint32_t saves = 0;
  std::uint32_t groups_of_rank_max = 1;  // of any rank: they share the room
  std::vector<GroupId> groups;           // by tensor of the rank's table
  bool operator==(const AuditPlan&) const = default;
};

struct AuditPiece {
  std::size_t tensor = 0;        // of the rank's table
  std::uint64_t first_byte = 0;  // of that tensor as the rank has it
  std::uint64_t bytes = 0;
  bool operator==(const AuditPiece&) const = default;
};

class Audit {
 public:
  Audit() = default;
  // `plan.groups` is as long as `specs`, each of which check_spec() has accepted.
  Audit(std::span<const TensorSpec> specs, const AuditPlan& plan);

  // The order is the same on all ranks of a group, whatever the order of their tables.
  [[nodiscard]] std::vector<AuditPiece> pieces(std::uint64_t save_index) const;
  // A close upper bound for the bytes of the pieces of any one save.
  [[nodiscard]] std::uint64_t bytes_max() const;

 private:
  struct Copy {
    std::size_t tensor = 0;
    std::uint64_t bytes = 0;
    std::uint64_t length = 0;  // on the line
  };
  struct Line {  // the tensors of a group, end to end
    std::vector<Copy> copies;
    std::uint64_t length = 0;
    std::uint64_t saves = 0;
    std::uint64_t bytes_max = 0;  // of one save
  };

  std::vector<Line> lines_;
};

}  // namespace deepfreeze
