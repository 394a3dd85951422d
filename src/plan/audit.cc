#include "plan/audit.h"

#include <algorithm>
#include <map>

#include "base/checked_math.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

// The bytes of a line from `begin` on and before `end`.
struct Window {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The place of turn `turn` of `turns` on a line: turns are as long as each other but for a byte.
std::uint64_t place_of(std::uint64_t turn, std::uint64_t turns, std::uint64_t bytes) {
  return bytes / turns * turn + bytes % turns * turn / turns;
}

void append_pieces(std::vector<AuditPiece>& pieces, std::size_t tensor, Window window) {
  while (window.begin < window.end) {
    const std::uint64_t cut = (window.begin / kAuditPieceBytes + 1) * kAuditPieceBytes;
    const std::uint64_t end = std::min(cut, window.end);
    pieces.push_back({tensor, window.begin, end - window.begin});
    window.begin = end;
  }
}

}  // namespace

Audit::Audit(std::span<const TensorSpec> specs, const AuditPlan& plan) : saves_(plan.saves) {
  std::map<GroupId, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < plan.groups.size() && saves_ > 0; ++i) {
    if (plan.groups[i] != kNoCopies) members[plan.groups[i]].push_back(i);
  }
  for (auto& [group, tensors] : members) {
    std::ranges::sort(tensors, {}, [specs](std::size_t i) {
      return std::pair<std::string_view, Shape>(specs[i].key, stored_box(specs[i]).offset);
    });
    Line& line = lines_.emplace_back();
    for (const std::size_t i : tensors) {
      line.copies.push_back({i, spec_bytes(specs[i]).value_or(0)});
      line.bytes += line.copies.back().bytes;
    }
  }
}

std::uint64_t Audit::bytes_max() const {
  std::uint64_t bytes = 0;
  for (const Line& line : lines_) bytes += ceil_div(line.bytes, saves_);
  return bytes;
}

std::vector<AuditPiece> Audit::pieces(std::uint64_t save_index) const {
  std::vector<AuditPiece> pieces;
  for (const Line& line : lines_) {
    const std::uint64_t turn = save_index % saves_;
    const Window window{place_of(turn, saves_, line.bytes), place_of(turn + 1, saves_, line.bytes)};
    std::uint64_t begin = 0;  // of the copy, on the line
    for (const Copy& copy : line.copies) {
      const std::uint64_t first = std::clamp(window.begin, begin, begin + copy.bytes);
      const std::uint64_t last = std::clamp(window.end, begin, begin + copy.bytes);
      append_pieces(pieces, copy.tensor, {first - begin, last - begin});
      begin += copy.bytes;
    }
  }
  return pieces;
}

}  // namespace deepfreeze
