// Copies the tensors of one save into the arena and checksums every block as it fills.
//
// A ledger counts, per block, the bytes that still lack; whoever brings the last ones computes
// the CRC while the block is in cache, and whoever completes a slab hands it to the writer. So
// the order of copying is free, and a capture that runs beside training (several threads, any
// order, a fence that helps) needs no other shape than the eager one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kCopyThreadsMax = 64;

// One contiguous source and its place in the data section.
struct CaptureItem {
  std::span<const std::byte> source;
  std::uint64_t offset = 0;
};

struct CaptureGeometry {
  std::span<std::byte> image;     // the data section in the arena; image.size() == data_bytes
  std::uint64_t block_bytes = 0;  // slab_bytes is a multiple of it
  std::uint64_t slab_bytes = 0;
};

// A copy is another handle of the same session. Any thread.
class CaptureSession {
 public:
  // Items tile `image` without holes or overlap (lay_out guarantees it), best in file order.
  // Where they leave a hole, its block never completes, so the session is never done; an item
  // that does not lie inside the image is not copied and so leaves one. `on_slab(index)` is
  // called once per slab, in no order, by the thread that completed it, and has returned for
  // all of them before the session is done; it must neither throw nor block long.
  CaptureSession(CaptureGeometry geometry, std::vector<CaptureItem> items,
                 std::function<void(std::size_t slab_index)> on_slab);

  // Claims and copies until nothing is left unclaimed. Any number of threads at once; each
  // returns when there is nothing left to claim (other threads may still be copying theirs).
  void help();

  // All bytes copied, all blocks checksummed, all slabs announced.
  [[nodiscard]] bool done() const;
  void wait() const;

  // Valid once done: one CRC-32C per block.
  [[nodiscard]] std::span<const std::uint32_t> block_crcs() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // also held by threads inside help()
};

}  // namespace deepfreeze
