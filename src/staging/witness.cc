#include "staging/witness.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/try.h"
#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

// The lines of the data section that lie wholly inside an item. Counted from the start of the
// data, so that no line reaches over the end of a block.
struct LineRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const { return end > begin ? end - begin : 0; }
};

LineRange lines_inside(std::uint64_t offset, std::uint64_t bytes) {
  return {ceil_div(offset, kLineBytes), (offset + bytes) / kLineBytes};
}

std::uint64_t strata(const LineRange& range) { return std::min(kWitnessLines, range.size()); }

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): neighbours give unrelated numbers.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The first line of the k-th of `count` parts of a range. Most items have the constant's number of
// parts, and then no division is left.
std::uint64_t part_begin(const LineRange& range, std::uint64_t k, std::uint64_t count) {
  if (count == kWitnessLines) return range.begin + range.size() * k / kWitnessLines;
  return range.begin + range.size() * k / count;
}

// One of `count` numbers, as even as by a division (Lemire 2019).
std::uint64_t scaled(std::uint64_t random, std::uint64_t count) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{random} * count) >> 64);
}

std::span<const std::byte> bytes_of(std::span<const std::byte> data, std::uint64_t data_offset,
                                    std::uint64_t line) {
  return data.subspan(line * kLineBytes - data_offset, kLineBytes);
}

}  // namespace

Witness::Witness(std::size_t item_count, WitnessSettings settings)
    : settings_(settings), records_(item_count) {}

std::uint64_t Witness::line(std::size_t index, const CaptureItem& item, std::uint64_t k) const {
  const LineRange range = lines_inside(item.offset, item.source.size());
  const std::uint64_t begin = part_begin(range, k, strata(range));
  const std::uint64_t end = part_begin(range, k + 1, strata(range));
  const std::uint64_t random = mixed(settings_.seed ^ mixed(index * kWitnessLines + k));
  return begin + scaled(random, end - begin);
}

// From an offset in the item to the end of the block, or of the item.
std::uint64_t Witness::piece_bytes(const CaptureItem& item, std::uint64_t at) const {
  const std::uint64_t room = settings_.block_bytes - (item.offset + at) % settings_.block_bytes;
  return std::min<std::uint64_t>(room, item.source.size() - at);
}

// An item without a whole line, as a step counter, is cheaper to read than to choose from.
bool Witness::every_byte_counts(const CaptureItem& item) const {
  return settings_.every_byte || lines_inside(item.offset, item.source.size()).size() == 0;
}

std::vector<std::uint32_t> Witness::piece_sums(const CaptureItem& item) const {
  std::vector<std::uint32_t> sums;
  for (std::uint64_t at = 0; at < item.source.size();) {
    const std::uint64_t bytes = piece_bytes(item, at);
    sums.push_back(crc32c(item.source.subspan(at, bytes)));
    at += bytes;
  }
  return sums;
}

Status Witness::record(std::size_t index, const CaptureItem& item, const Read& read) {
  Record& record = records_[index];
  record.pieces.clear();
  for (std::uint64_t at = 0; at < item.source.size();) {
    const std::uint64_t bytes = piece_bytes(item, at);
    DF_TRY_VOID(read(item.source.subspan(at, bytes), [&record](std::span<const std::byte> piece) {
      record.pieces.push_back(crc32c(piece));
    }));
    at += bytes;
  }
  record.recorded = true;
  return {};
}

Witness::Lines Witness::find_lines(std::size_t index, const CaptureItem& item) const {
  Lines lines;
  if (every_byte_counts(item)) return lines;
  lines.count = strata(lines_inside(item.offset, item.source.size()));
  for (std::uint64_t k = 0; k < lines.count; ++k) {
    lines.at[k] = bytes_of(item.source, item.offset, line(index, item, k)).data();
    __builtin_prefetch(lines.at[k]);
  }
  return lines;
}

// The lines lie far apart: those of the next item are fetched while one item's are summed.
void Witness::record(std::span<const CaptureItem> items, std::span<const std::size_t> members) {
  if (members.empty()) return;
  Lines next = find_lines(members.front(), items[members.front()]);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::size_t index = members[i];
    const Lines lines = next;
    if (i + 1 < members.size()) next = find_lines(members[i + 1], items[members[i + 1]]);
    Record& record = records_[index];
    record.recorded = true;
    if (lines.count == 0) {
      record.pieces = piece_sums(items[index]);
    } else {
      crc32c_of_lines(std::span(lines.at).first(lines.count), record.lines);
    }
  }
}

bool Witness::lines_match(const CaptureItem& item, const CapturePiece& piece,
                          std::span<const std::byte> copied) const {
  const LineRange all = lines_inside(item.offset, item.source.size());
  const LineRange here = lines_inside(piece.offset, piece.bytes);
  const std::uint64_t count = strata(all);
  if (here.size() == 0) return true;
  // The parts that reach into this piece: one or two of a large tensor.
  const std::uint64_t first = (here.begin - all.begin) * count / all.size();
  for (std::uint64_t k = first; k < count && part_begin(all, k, count) < here.end; ++k) {
    const std::uint64_t at = line(piece.item, item, k);
    if (at < here.begin || at >= here.end) continue;
    if (crc32c(bytes_of(copied, piece.offset, at)) != records_[piece.item].lines[k]) return false;
  }
  return true;
}

bool Witness::matches(const CaptureItem& item, const CapturePiece& piece,
                      std::span<const std::byte> copied) const {
  const Record& record = records_[piece.item];
  if (!record.recorded) return true;
  if (every_byte_counts(item)) {
    const std::uint64_t number =
        piece.offset / settings_.block_bytes - item.offset / settings_.block_bytes;
    return crc32c(copied) == record.pieces[number];
  }
  return lines_match(item, piece, copied);
}

bool Witness::unchanged(std::size_t index, const CaptureItem& item) const {
  const Record& record = records_[index];
  if (!record.recorded) return true;
  if (every_byte_counts(item)) return record.pieces == piece_sums(item);
  return lines_match(item, {.item = index, .offset = item.offset, .bytes = item.source.size()},
                     item.source);
}

}  // namespace deepfreeze
