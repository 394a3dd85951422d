// The checksums of an image that stays where it is: read in place, a slab at a time.
//
// Owned by one save, shared with the threads that help; the image's memory outlives them all. Any
// thread, any number at once. The first to finish a slab counts: what a thread has begun, which
// may lose its core for long, a waiter does again, because reading twice does no harm. Not what it
// has counted and not announced yet: the few instructions between the two are not covered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "staging/image.h"

namespace deepfreeze {

class SlabChecksums {
 public:
  // `on_slab` is called once per slab, by who finished it: it may be written. Must not block. The
  // image is no ring.
  SlabChecksums(const Image& image, std::function<void(std::size_t slab)> on_slab);

  // Does what nobody has begun.
  void help();
  // Returns when all is checksummed: helps, then does again what others have not finished.
  void finish();
  // In place of the two: leaves zeros, which no reader accepts.
  void skip();

  // For who knows of on_slab's call for every slab.
  [[nodiscard]] std::span<const std::uint32_t> block_crcs() const { return block_crcs_; }

 private:
  void checksum(std::size_t slab);
  [[nodiscard]] bool count(std::size_t slab);

  const Image image_;
  const std::function<void(std::size_t)> on_slab_;
  std::vector<std::uint32_t> block_crcs_;       // those of a slab: written by who finished it
  std::vector<std::atomic<bool>> is_finished_;  // by slab
  std::atomic<std::size_t> next_{0};            // slab that nobody has begun
};

}  // namespace deepfreeze
