#include "pipeline/read_runs.h"

#include <algorithm>

#include "base/checked_math.h"

namespace deepfreeze {
namespace {

std::vector<ReadPiece> by_begin(std::span<const ReadPiece> pieces) {
  std::vector<ReadPiece> sorted;
  sorted.reserve(pieces.size());
  std::ranges::copy_if(pieces, std::back_inserter(sorted),
                       [](const ReadPiece& piece) { return piece.source.size() > 0; });
  std::ranges::sort(sorted, {}, [](const ReadPiece& piece) { return piece.source.begin; });
  return sorted;
}

// The touched blocks as few long stretches; neighbouring blocks are one stretch.
std::vector<Extent> stretches(std::span<const ReadPiece> sorted, std::uint64_t data_bytes) {
  std::vector<Extent> found;
  for (const ReadPiece& piece : sorted) {
    const Extent blocks = {piece.source.begin / kBlockBytes * kBlockBytes,
                           std::min(round_up(piece.source.end, kBlockBytes), data_bytes)};
    if (!found.empty() && blocks.begin <= found.back().end) {
      found.back().end = std::max(found.back().end, blocks.end);
    } else {
      found.push_back(blocks);
    }
  }
  return found;
}

std::vector<ReadRun> cut(std::span<const Extent> stretches) {
  std::vector<ReadRun> runs;
  for (Extent rest : stretches) {
    while (rest.size() > 0) {
      const std::uint64_t end = std::min(rest.end, rest.begin + kSlabBytes);
      runs.push_back({.source = {rest.begin, end}, .pieces = {}});
      rest.begin = end;
    }
  }
  return runs;
}

// The part of `piece` that lies in `run`.
ReadPiece intersect(const ReadPiece& piece, const Extent& run) {
  const Extent common = {std::max(piece.source.begin, run.begin),
                         std::min(piece.source.end, run.end)};
  return {common, piece.into.subspan(common.begin - piece.source.begin, common.size()),
          piece.device};
}

// A piece lies in one stretch, so its runs follow each other without gaps.
void deal(const ReadPiece& piece, std::span<ReadRun> runs) {
  for (ReadRun& run : runs) {
    if (run.source.begin >= piece.source.end) return;
    run.pieces.push_back(intersect(piece, run.source));
  }
}

}  // namespace

std::vector<ReadRun> plan_runs(std::span<const ReadPiece> pieces, std::uint64_t data_bytes) {
  const std::vector<ReadPiece> sorted = by_begin(pieces);
  std::vector<ReadRun> runs = cut(stretches(sorted, data_bytes));
  std::size_t first = 0;  // of the runs that the next piece can reach: only ever grows
  for (const ReadPiece& piece : sorted) {
    while (runs[first].source.end <= piece.source.begin) ++first;
    deal(piece, std::span(runs).subspan(first));
  }
  return runs;
}

}  // namespace deepfreeze
