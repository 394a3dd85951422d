// What the tests of this folder capture: random bytes, cut into random items. Tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "codec/crc32c.h"
#include "staging/capture_session.h"

namespace deepfreeze {

struct TilingOptions {
  std::size_t image_bytes = 0;
  std::size_t item_bytes_max = 0;
  bool shuffled = false;  // else in file order
};

// An image, its items (each in memory of its own), and what a session made of them.
class Capture {
 public:
  Capture(std::uint64_t seed, const TilingOptions& options, std::uint64_t block_bytes,
          std::uint64_t slab_bytes)
      : random_(seed),
        expected_(options.image_bytes),
        image_(options.image_bytes),
        block_bytes_(block_bytes),
        slab_bytes_(slab_bytes),
        announced_(ceil_div(options.image_bytes, slab_bytes)) {
    for (std::byte& byte : expected_) byte = static_cast<std::byte>(random_());
    cut(options.item_bytes_max);
    if (options.shuffled) std::ranges::shuffle(items_, random_);
  }

  [[nodiscard]] CaptureSession session() {
    return CaptureSession({.image = image_, .block_bytes = block_bytes_, .slab_bytes = slab_bytes_},
                          items_, [this](std::size_t slab) { note(slab); });
  }

  std::vector<CaptureItem>& items() { return items_; }
  [[nodiscard]] const std::vector<std::byte>& image() const { return image_; }
  [[nodiscard]] const std::vector<std::byte>& expected() const { return expected_; }
  [[nodiscard]] const std::vector<int>& announced() const { return announced_; }
  [[nodiscard]] bool every_slab_was_final() const { return every_slab_was_final_; }

  [[nodiscard]] std::vector<std::uint32_t> expected_crcs() const {
    std::vector<std::uint32_t> crcs;
    for (std::size_t at = 0; at < expected_.size(); at += block_bytes_) {
      const auto bytes = std::min<std::size_t>(block_bytes_, expected_.size() - at);
      crcs.push_back(crc32c(std::span(expected_).subspan(at, bytes)));
    }
    return crcs;
  }

 private:
  void cut(std::size_t item_bytes_max) {
    if (item_bytes_max == 0) return;  // the test makes its own
    std::uniform_int_distribution<std::size_t> size(0, item_bytes_max);
    for (std::size_t at = 0; at < expected_.size();) {
      const std::size_t bytes = std::min(size(random_), expected_.size() - at);
      const auto begin = expected_.begin() + static_cast<std::ptrdiff_t>(at);
      sources_.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(bytes));
      items_.push_back({sources_.back(), at});
      at += bytes;
    }
  }

  void note(std::size_t slab) {
    const std::size_t begin = slab * slab_bytes_;
    const std::size_t bytes = std::min<std::size_t>(slab_bytes_, image_.size() - begin);
    const bool final = std::ranges::equal(std::span(image_).subspan(begin, bytes),
                                          std::span(expected_).subspan(begin, bytes));
    const std::lock_guard lock(mutex_);
    ++announced_.at(slab);
    every_slab_was_final_ = every_slab_was_final_ && final;
  }

  std::mt19937_64 random_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> image_;
  std::vector<std::vector<std::byte>> sources_;
  std::vector<CaptureItem> items_;
  const std::uint64_t block_bytes_;
  const std::uint64_t slab_bytes_;
  std::mutex mutex_;
  std::vector<int> announced_;        // guarded by mutex_
  bool every_slab_was_final_ = true;  // guarded by mutex_
};

inline std::vector<std::uint32_t> copy_of(std::span<const std::uint32_t> crcs) {
  return {crcs.begin(), crcs.end()};
}

}  // namespace deepfreeze
