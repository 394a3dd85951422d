// Which stretches of the data section a set of pieces needs, and which pieces each one feeds.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/block_reader.h"

namespace deepfreeze {

// Consecutive blocks that are read at once: at most kSlabBytes. Runs don't overlap.
struct ReadRun {
  Extent source;                  // whole blocks, but for the end of the data
  std::vector<ReadPiece> pieces;  // each inside `source`
};

// In file order; every block that a piece touches is in exactly one run, no other block is in
// any. Pieces that reach into several runs are split. Their sources lie within `data_bytes`.
// O(n log n) in pieces plus one step per run that a piece reaches into.
[[nodiscard]] std::vector<ReadRun> plan_runs(std::span<const ReadPiece> pieces,
                                             std::uint64_t data_bytes);

}  // namespace deepfreeze
