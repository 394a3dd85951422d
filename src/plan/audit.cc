#include "plan/audit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

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
std::uint64_t place_of(std::uint64_t turn, std::uint64_t turns, std::uint64_t length) {
  return length / turns * turn + length % turns * turn / turns;
}

// place_of() multiplies two of them.
constexpr std::uint64_t kSavesMax = std::numeric_limits<std::uint32_t>::max();

// Small tensors count as more than they are, so that not all of them come in one turn.
constexpr std::uint64_t kLengthMin = 256 * 1024;

std::uint64_t length_of(std::uint64_t bytes) {
  return bytes == 0 ? 0 : std::max(bytes, kLengthMin);
}

// How many of a tensor's bytes lie before that place of its length.
std::uint64_t bytes_until(std::uint64_t bytes, std::uint64_t place) {
  return bytes >= kLengthMin ? place : place * bytes / kLengthMin;
}

// The copies on a line, by their places and by how many bytes lie before each.
class Places {
 public:
  void add(std::uint64_t bytes, std::uint64_t length) {
    places_.push_back(places_.back() + length);
    bytes_.push_back(bytes_.back() + bytes);
  }

  // The most bytes in any stretch of the line that is `length` long. Between two places the bytes
  // rise evenly, so the maximum begins or ends at one of them.
  [[nodiscard]] std::uint64_t bytes_max(std::uint64_t length) const {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const std::uint64_t place = places_[i];
      const std::uint64_t behind = std::min(place + length, places_.back());
      const std::uint64_t ahead = place - std::min(place, length);
      most = std::max(
          {most, bytes_before(behind, kUp) - bytes_[i], bytes_[i] - bytes_before(ahead, kDown)});
    }
    return most;
  }

 private:
  static constexpr std::uint64_t kDown = 0;  // added before the division, to round a fraction of a
                                             // byte down
  static constexpr std::uint64_t kUp = kLengthMin - 1;

  [[nodiscard]] std::uint64_t bytes_before(std::uint64_t place, std::uint64_t rounding) const {
    const auto after = std::ranges::upper_bound(places_, place);
    if (after == places_.end()) return bytes_.back();
    const auto i = static_cast<std::size_t>(after - places_.begin()) - 1;
    const std::uint64_t bytes = bytes_[i + 1] - bytes_[i];
    const std::uint64_t within = place - places_[i];
    if (bytes >= kLengthMin) return bytes_[i] + within;
    return bytes_[i] + (within * bytes + rounding) / kLengthMin;
  }

  std::vector<std::uint64_t> places_ = {0};
  std::vector<std::uint64_t> bytes_ = {0};
};

// The number of turns for a line of that length if a header has room for `pieces_max` pieces per
// turn. A tensor of `n` pieces is longer than n - 1 whole pieces and no shorter than kLengthMin, so
// a stretch as long as one piece has at most kPiecesMax pieces; the two ends of a turn each cut one
// more.
std::uint64_t turns_needed(std::uint64_t length, std::uint64_t pieces_max) {
  constexpr std::uint64_t kPiecesMax = kAuditPieceBytes / kLengthMin;
  constexpr std::uint64_t kCut = 2;
  const std::uint64_t whole = std::max(pieces_max, kCut + 1) - kCut;
  return ceil_div(length, whole * (kAuditPieceBytes / kPiecesMax));
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

std::uint64_t audit_text_bytes(const TensorSpec& spec) {
  constexpr std::uint64_t kFrame = 64;    // two numbers, the checksum, quotes and brackets
  constexpr std::uint64_t kNumber = 21;   // a u64 and its comma
  constexpr std::uint64_t kEscaped = 12;  // \u0000, whose backslash is escaped again
  const auto is_plain = [](unsigned char c) { return c >= ' ' && c != '"' && c != '\\'; };
  const std::uint64_t each = std::ranges::all_of(spec.key, is_plain) ? 1 : kEscaped;
  return kFrame + each * spec.key.size() + kNumber * spec.shape.size();
}

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
    Places places;
    std::uint64_t text_bytes = 1;
    for (const std::size_t i : tensors) {
      const std::uint64_t bytes = spec_bytes(specs[i]).value_or(0);
      line.copies.push_back({i, bytes, length_of(bytes)});
      line.length += line.copies.back().length;
      places.add(bytes, line.copies.back().length);
      text_bytes = std::max(text_bytes, audit_text_bytes(specs[i]));
    }
    const std::uint64_t room = kAuditTextBytesMax / plan.groups_of_rank_max / text_bytes;
    const std::uint64_t needed = turns_needed(line.length, room);
    line.saves = std::clamp<std::uint64_t>(needed, plan.saves, kSavesMax);
    line.bytes_max = places.bytes_max(ceil_div(line.length, line.saves));
  }
}

std::uint64_t Audit::bytes_max() const {
  std::uint64_t bytes = 0;
  for (const Line& line : lines_) bytes += line.bytes_max;
  return bytes;
}

std::vector<AuditPiece> Audit::pieces(std::uint64_t save_index) const {
  std::vector<AuditPiece> pieces;
  for (const Line& line : lines_) {
    const std::uint64_t turn = save_index % line.saves;
    const Window window{place_of(turn, line.saves, line.length),
                        place_of(turn + 1, line.saves, line.length)};
    std::uint64_t begin = 0;  // of the copy, on the line
    for (const Copy& copy : line.copies) {
      const std::uint64_t first = std::clamp(window.begin, begin, begin + copy.length) - begin;
      const std::uint64_t last = std::clamp(window.end, begin, begin + copy.length) - begin;
      append_pieces(pieces, copy.tensor,
                    {bytes_until(copy.bytes, first), bytes_until(copy.bytes, last)});
      begin += copy.length;
    }
  }
  return pieces;
}

}  // namespace deepfreeze
