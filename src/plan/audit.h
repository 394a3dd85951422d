// Which bytes of what ranks have alike a rank looks at in one save, so that all ranks look at the
// same ones and, within so many saves, at all of them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/holders.h"

namespace deepfreeze {

// A piece is looked at as a whole, and never goes beyond a multiple of this of its tensor.
inline constexpr std::uint64_t kAuditPieceBytes = 1024 * 1024;

// Of what a header says of the pieces of one save, when each takes the longest key.
inline constexpr std::uint64_t kAuditTextBytesMax = 400'000;

// No less than a header takes for a piece of that tensor.
[[nodiscard]] std::uint64_t audit_text_bytes(const TensorSpec& spec);

// The same on all ranks but for the groups, which are those of SharePlan.
struct AuditPlan {
  // Within which all is looked at; 0: nothing ever is. A group takes more saves where a header
  // would have no room for its pieces: with keys of 60 bytes from 60 GB on, or from 240,000
  // tensors, where 100 are wanted.
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

  // In one order on all ranks of a group, whatever the order of their tables.
  [[nodiscard]] std::vector<AuditPiece> pieces(std::uint64_t save_index) const;
  // No less than the pieces of any save have together, and hardly more.
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
