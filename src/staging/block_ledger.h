// Counts the missing bytes of each block of an image and the missing blocks of each slab. The
// thread that brings a block's last bytes computes its CRC while they are in the cache, unless the
// copy did; the thread that completes a slab announces it. Takes no lock. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arena/image.h"
#include "staging/piece_copy.h"

namespace deepfreeze {

class BlockLedger {
 public:
  // `block_bytes` divides the image's slabs. `on_slab` is called once per slab, in no order.
  BlockLedger(const Image& image, std::uint64_t block_bytes,
              std::function<void(std::size_t slab)> on_slab);

  // Counts `bytes` more bytes of `block` as present; `crc` is their checksum if they are the whole
  // block and it is known. True for the one call that made the image complete; on_slab has returned
  // for every slab by then.
  [[nodiscard]] bool arrived(std::uint64_t block, std::uint64_t bytes, BlockCrc crc = {});

  // Once true, block_crcs() may be read: by block of the image, 0 for a block without bytes.
  [[nodiscard]] bool complete() const;
  [[nodiscard]] std::span<const std::uint32_t> block_crcs() const { return block_crcs_; }

  [[nodiscard]] std::uint64_t checksum_nanos() const {
    return checksum_nanos_.load(std::memory_order_relaxed);  // for display
  }

 private:
  [[nodiscard]] bool finish_block(std::uint64_t block, BlockCrc crc);
  [[nodiscard]] std::uint32_t timed_crc(std::span<const std::byte> bytes);

  const Image image_;
  const std::uint64_t block_bytes_;
  const std::function<void(std::size_t)> on_slab_;
  std::vector<std::uint32_t> block_crcs_;               // each written once, by the thread that
                                                        // finished it
  std::vector<std::atomic<std::uint64_t>> block_lack_;  // bytes
  std::vector<std::atomic<std::uint64_t>> slab_lack_;   // blocks
  std::atomic<std::uint64_t> slabs_lack_;
  std::atomic<std::uint64_t> checksum_nanos_{0};
};

}  // namespace deepfreeze
