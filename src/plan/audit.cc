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

// Small tensors count as more than they are, so that not all of them come in one turn.
constexpr std::uint64_t kLengthMin = 64 * 1024;

std::uint64_t length_of(std::uint64_t bytes) {
  return bytes == 0 ? 0 : std::max(bytes, kLengthMin);
}

// How many of a tensor's bytes lie before that place of its length.
std::uint64_t bytes_until(std::uint64_t bytes, std::uint64_t place) {
  return bytes >= kLengthMin ? place : place * bytes / kLengthMin;
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

Audit::Audit(std::span<const TensorSpec> specs, const AuditPlan& plan) {
  std::map<GroupId, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < plan.groups.size() && plan.saves > 0; ++i) {
    if (plan.groups[i] != kNoCopies) members[plan.groups[i]].push_back(i);
  }
  for (auto& [group, tensors] : members) {
    std::ranges::sort(tensors, {}, [specs](std::size_t i) {
      return std::pair<std::string_view, Shape>(specs[i].key, stored_box(specs[i]).offset);
    });
    Line& line = lines_.emplace_back();
    for (const std::size_t i : tensors) {
      const std::uint64_t bytes = spec_bytes(specs[i]).value_or(0);
      line.copies.push_back({i, bytes, specs[i].key.size(), length_of(bytes)});
      line.length += line.copies.back().length;
    }
    line.saves = plan.saves;
    while (!has_room(line, plan.groups_of_rank_max)) line.saves *= 2;
  }
}

bool Audit::has_room(const Line& line, std::uint32_t lines) {
  for (std::uint64_t turn = 0; turn < line.saves; ++turn) {
    std::vector<AuditPiece> pieces;
    append_turn(line, turn, pieces);
    std::uint64_t key_bytes = 0;
    for (const AuditPiece& piece : pieces) key_bytes += line.copies[piece.tensor].key_bytes;
    if (pieces.size() <= 1) continue;  // no fewer are possible
    if (pieces.size() * lines > kAuditPiecesMax || key_bytes * lines > kAuditKeyBytesMax) {
      return false;
    }
  }
  return true;
}

// Pieces name the place of the tensor on the line.
void Audit::append_turn(const Line& line, std::uint64_t turn, std::vector<AuditPiece>& pieces) {
  const Window window{place_of(turn, line.saves, line.length),
                      place_of(turn + 1, line.saves, line.length)};
  std::uint64_t begin = 0;  // of the copy, on the line
  for (std::size_t i = 0; i < line.copies.size() && begin < window.end; ++i) {
    const Copy& copy = line.copies[i];
    const std::uint64_t first = std::clamp(window.begin, begin, begin + copy.length) - begin;
    const std::uint64_t last = std::clamp(window.end, begin, begin + copy.length) - begin;
    append_pieces(pieces, i, {bytes_until(copy.bytes, first), bytes_until(copy.bytes, last)});
    begin += copy.length;
  }
}

std::uint64_t Audit::bytes_max() const {
  std::uint64_t bytes = 0;
  for (const Line& line : lines_) bytes += ceil_div(line.length, line.saves);
  return bytes;
}

std::vector<AuditPiece> Audit::pieces(std::uint64_t save_index) const {
  std::vector<AuditPiece> pieces;
  for (const Line& line : lines_) {
    const std::size_t before = pieces.size();
    append_turn(line, save_index % line.saves, pieces);
    for (std::size_t i = before; i < pieces.size(); ++i) {
      pieces[i].tensor = line.copies[pieces[i].tensor].tensor;
    }
  }
  return pieces;
}

}  // namespace deepfreeze
