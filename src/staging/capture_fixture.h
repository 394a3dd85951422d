// The captures of this folder's tests: random bytes, cut into random items. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "base/checked_math.h"
#include "codec/crc32c.h"
#include "staging/capture_session.h"

namespace deepfreeze {

struct TilingOptions {
  std::size_t image_bytes = 0;
  std::size_t item_bytes_max = 0;
  bool shuffled = false;         // else in file order
  std::uint32_t guards = 0;      // each item has one of these, or none
  std::uint64_t ring_slabs = 0;  // 0: memory for all of the image
};

// An image, its items (each in memory of its own), and the results of a session over them.
class Capture {
 public:
  Capture(std::uint64_t seed, const TilingOptions& options, std::uint64_t block_bytes,
          std::uint64_t slab_bytes)
      : random_(seed),
        expected_(options.image_bytes),
        image_(options.ring_slabs > 0 ? options.ring_slabs * slab_bytes : options.image_bytes),
        taken_(options.image_bytes),
        block_bytes_(block_bytes),
        slab_bytes_(slab_bytes),
        announced_(ceil_div(options.image_bytes, slab_bytes)) {
    for (std::byte& byte : expected_) byte = static_cast<std::byte>(random_());
    cut(options);
    if (options.shuffled) std::ranges::shuffle(parts_, random_);
    for (const Part& part : parts_) items_.push_back({part.bytes, part.offset, part.guard});
  }

  [[nodiscard]] CaptureSpec spec() {
    return {.image = layout(),
            .block_bytes = block_bytes_,
            .items = items_,
            .on_slab = [this](std::size_t slab) { note(slab); },
            .on_done = [this] { ++times_done_; }};
  }
  // All of it released.
  [[nodiscard]] CaptureSession session() {
    CaptureSession session(spec());
    session.release_all();
    return session;
  }

  // Every byte of an item's source, or of all that a guard guards, becomes another.
  void change(std::size_t item) {
    for (std::byte& byte : parts_.at(item).bytes) byte = ~byte;
  }
  void change_guarded(std::uint32_t guard) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].guard == guard) change(i);
    }
  }

  // The image of the item's source as it is now.
  void expect_changed(std::size_t item) {
    const Part& part = parts_.at(item);
    std::ranges::copy(part.bytes, expected_.begin() + static_cast<std::ptrdiff_t>(part.offset));
  }
  // Before a second session over the same memory.
  void forget_announced() {
    std::ranges::fill(announced_, 0);
    times_done_ = 0;
  }

  std::vector<CaptureItem>& items() { return items_; }
  [[nodiscard]] std::vector<std::byte>& image() { return image_; }  // the memory
  // The contents of each slab when it was announced.
  [[nodiscard]] const std::vector<std::byte>& taken() const { return taken_; }
  [[nodiscard]] const std::vector<std::byte>& expected() const { return expected_; }
  [[nodiscard]] const std::vector<int>& announced() const { return announced_; }
  // While threads still copy.
  [[nodiscard]] std::vector<int> announced_now() {
    const std::lock_guard lock(mutex_);
    return announced_;
  }
  [[nodiscard]] int times_done() const { return times_done_; }

  [[nodiscard]] std::vector<std::uint32_t> expected_crcs() const {
    std::vector<std::uint32_t> crcs;
    for (std::size_t at = 0; at < expected_.size(); at += block_bytes_) {
      const auto bytes = std::min<std::size_t>(block_bytes_, expected_.size() - at);
      crcs.push_back(crc32c(std::span(expected_).subspan(at, bytes)));
    }
    return crcs;
  }

 private:
  struct Part {
    std::vector<std::byte> bytes;
    std::uint64_t offset = 0;
    std::uint32_t guard = 0;
  };

  [[nodiscard]] Image layout() { return {image_, expected_.size(), slab_bytes_}; }

  void cut(const TilingOptions& options) {
    if (options.item_bytes_max == 0) return;  // the test makes its own
    std::uniform_int_distribution<std::size_t> size(0, options.item_bytes_max);
    std::uniform_int_distribution<std::uint32_t> guard(0, options.guards);
    for (std::size_t at = 0; at < expected_.size();) {
      const std::size_t bytes = std::min(size(random_), expected_.size() - at);
      const auto begin = expected_.begin() + static_cast<std::ptrdiff_t>(at);
      parts_.push_back({{begin, begin + static_cast<std::ptrdiff_t>(bytes)}, at, guard(random_)});
      at += bytes;
    }
  }

  void note(std::size_t slab) {
    const auto bytes = layout().slab(slab);
    const std::lock_guard lock(mutex_);
    ++announced_.at(slab);
    std::ranges::copy(bytes, taken_.begin() + static_cast<std::ptrdiff_t>(slab * slab_bytes_));
  }

  std::mt19937_64 random_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> image_;
  std::vector<std::byte> taken_;  // guarded by mutex_
  std::vector<Part> parts_;       // by item
  std::vector<CaptureItem> items_;
  const std::uint64_t block_bytes_;
  const std::uint64_t slab_bytes_;
  std::mutex mutex_;
  std::vector<int> announced_;  // guarded by mutex_
  std::atomic<int> times_done_{0};
};

inline std::vector<std::uint32_t> copy_of(std::span<const std::uint32_t> crcs) {
  return {crcs.begin(), crcs.end()};
}

// Once: every slab, and the end; with the bytes that the sources had in the beginning.
inline void expect_complete(const Capture& capture, const CaptureSession& session) {
  EXPECT_TRUE(session.done());
  EXPECT_EQ(capture.taken(), capture.expected());
  EXPECT_EQ(copy_of(session.block_crcs()), capture.expected_crcs());
  EXPECT_EQ(capture.announced(), std::vector<int>(capture.announced().size(), 1));
  EXPECT_EQ(session.torn_items(), std::vector<std::size_t>());
  EXPECT_LE(capture.times_done(), 1);
}

inline void help_with_threads(CaptureSession& session, std::size_t thread_count) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&session] {
      session.help();
      session.wait();
    });
  }
}

}  // namespace deepfreeze
