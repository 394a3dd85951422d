// Some tensors on devices of the fake driver, an arena, and a session over them, served as the
// engine does it. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "arena/arena.h"
#include "device/cuda_device.h"
#include "staging/capture_session.h"
#include "staging/device_copier.h"
#include "support/fake_device.h"

namespace deepfreeze {

class DeviceCaptureTest : public FakeDeviceTest {
 protected:
  static constexpr std::uint64_t kBlock = 4096;
  static constexpr std::uint64_t kSlab = 4 * kBlock;
  static constexpr std::uint32_t kFirst = 1;
  static constexpr std::uint32_t kSecond = 2;
  static constexpr std::byte kBefore{0x11};
  static constexpr std::byte kAfter{0x77};

  ~DeviceCaptureTest() override { close(); }

  void add(std::uint64_t bytes, std::uint32_t guard, std::int32_t device = 0) {
    tensors_.push_back(std::make_unique<DeviceMemory>(bytes));
    std::ranges::fill(tensors_.back()->bytes(), kBefore);
    items_.push_back(
        {.source = tensors_.back()->bytes(), .offset = end_, .guard = guard, .device = device});
    end_ += bytes;
  }

  // `ring_slabs` of 0: memory for all of the image.
  void open(std::uint64_t ring_slabs = 0, bool paranoid = false) {
    memory_bytes_ = ring_slabs > 0 ? ring_slabs * kSlab : end_;
    ASSERT_TRUE(arena_.reserve(memory_bytes_));
    devices_.emplace();
    CaptureDevices used;
    for (const CaptureItem& item : items_) {
      if (item.device == kHostMemory || used.contains(item.device)) continue;
      const auto device = devices_->get(item.device);
      ASSERT_TRUE(device) << device.error().message();
      used[item.device] = *device;
    }
    auto pinned = used.begin()->second->pin(arena_.bytes());
    if (pinned) pinned_ = *std::move(pinned);
    taken_.assign(end_, std::byte{0});
    session_.emplace(CaptureSpec{.image = image(),
                                 .block_bytes = kBlock,
                                 .items = items_,
                                 .on_slab = [this](std::size_t slab) { take(slab); },
                                 .on_copied = [this] { ++times_copied_; },
                                 .on_done = [this] { is_done_ = true; },
                                 .on_error = [this](const Error& error) { note(error); },
                                 .devices = used,
                                 .witness_seed = 1,
                                 .paranoid = paranoid});
    copier_.emplace();
  }

  void begin(std::span<const DeviceStream> streams) {
    session_->release_all(streams);
    session_->enqueue_unguarded();
    copier_->serve(*session_);
    session_->fence(kUnguarded, streams);
    session_->help();
  }

  void close() {
    fake_driver::let_go();
    if (session_) session_->cancel();
    copier_.reset();
    session_.reset();
    pinned_ = {};
    devices_.reset();
  }

  // For a test that does it all again.
  void start_anew() {
    close();
    items_.clear();
    tensors_.clear();
    end_ = 0;
    times_copied_ = 0;
    is_done_ = false;
    errors_.clear();
  }

  // A kernel that changes all tensors of a guard.
  void change(std::uintptr_t stream, std::uint32_t guard) {
    fake_driver::launch(stream, [this, guard] {
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if (items_[i].guard == guard) std::ranges::fill(tensors_[i]->bytes(), kAfter);
      }
    });
  }

  void expect_captured(std::byte value) {
    session_->wait();
    EXPECT_EQ(times_copied_, 1);
    EXPECT_TRUE(is_done_);
    EXPECT_TRUE(errors().empty());
    EXPECT_EQ(fake_driver::unpinned_copies(), 0);
    expect_taken(value);
  }
  void expect_taken(std::byte value) {
    const std::lock_guard lock(mutex_);
    const auto other = std::ranges::find_if(taken_, [&](std::byte each) { return each != value; });
    EXPECT_EQ(other - taken_.begin(), static_cast<std::ptrdiff_t>(taken_.size())) << "is torn";
  }

  [[nodiscard]] std::vector<Error> errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }
  [[nodiscard]] Image image() const { return {arena_.bytes().first(memory_bytes_), end_, kSlab}; }

  std::vector<std::unique_ptr<DeviceMemory>> tensors_;
  std::vector<CaptureItem> items_;
  std::optional<CaptureSession> session_;
  std::optional<CudaDevices> devices_;
  std::atomic<int> times_copied_{0};
  std::atomic<bool> is_done_{false};
  std::atomic<bool> frees_slabs_{true};
  std::atomic<int> taken_slabs_{0};

 private:
  // As the writer: takes the slab's contents when it was announced.
  void take(std::size_t slab) {
    const auto bytes = image().slab(slab);
    {
      const std::lock_guard lock(mutex_);
      std::ranges::copy(bytes, taken_.begin() + static_cast<std::ptrdiff_t>(slab * kSlab));
    }
    if (frees_slabs_) session_->free_slab(slab);
    ++taken_slabs_;
  }
  void note(const Error& error) {
    const std::lock_guard lock(mutex_);
    errors_.push_back(error);
  }

  Arena arena_;
  PinnedMemory pinned_;
  std::optional<DeviceCopier> copier_;
  std::uint64_t end_ = 0;
  std::uint64_t memory_bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::byte> taken_;  // guarded by mutex_, as the next
  std::vector<Error> errors_;
};

}  // namespace deepfreeze
