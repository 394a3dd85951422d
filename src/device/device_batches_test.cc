#include "device/device_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/cuda_device.h"

namespace deepfreeze::device_batches_test {
namespace {

constexpr std::uint64_t kSlab = 4096;
constexpr std::uint64_t kWindow = kBatchSlabs * kSlab;

// Only sizes and places count: nothing here reads a source.
CaptureItem item(std::uint64_t offset, std::uint64_t bytes, std::uint32_t guard,
                 std::int32_t device) {
  return {.source = {static_cast<const std::byte*>(nullptr), bytes},
          .offset = offset,
          .guard = guard,
          .device = device};
}

Image image_of(std::uint64_t bytes, std::vector<std::byte>& memory) {
  return {std::span(memory), bytes, kSlab};
}

std::uint64_t bytes_of(const DeviceBatch& batch) {
  std::uint64_t bytes = 0;
  for (const CapturePiece& part : batch.parts) bytes += part.bytes;
  return bytes;
}

// The last of all lanes.
std::size_t last_of(const DevicePlan& plan, std::size_t group, std::int32_t device) {
  std::size_t found = 0;
  for (const auto& [place, last] : plan.last[group]) {
    if (place.first == device) found = std::max(found, last);
  }
  return found;
}

TEST(DeviceBatches, WhatLiesInHostMemoryIsLeftOut) {
  std::vector<std::byte> memory(2 * kSlab);
  const std::vector items = {item(0, kSlab, 1, kHostMemory), item(kSlab, kSlab, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(2 * kSlab, memory), 2);
  ASSERT_EQ(plan.batches.size(), 1U);
  EXPECT_EQ(plan.batches[0].parts[0].item, 1U);
  EXPECT_EQ(bytes_of(plan.batches[0]), kSlab);
}

TEST(DeviceBatches, SmallTensorsOfAGroupShareABatch) {
  std::vector<std::byte> memory(kSlab);
  const std::vector items = {item(0, 64, 1, 0), item(64, 64, 2, 0), item(128, 64, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(192, memory), 3);
  ASSERT_EQ(plan.of_group[1].size(), 1U);
  EXPECT_EQ(plan.batches[plan.of_group[1][0]].parts.size(), 2U);
  ASSERT_EQ(plan.of_group[2].size(), 1U);
  EXPECT_EQ(last_of(plan, 2, 0), plan.of_group[2][0]);
}

TEST(DeviceBatches, ALargeImageIsNoMoreThanSoMany) {
  std::vector<std::byte> memory(1000 * kWindow);
  const std::vector items = {item(0, 1000 * kWindow, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(1000 * kWindow, memory), 2);
  EXPECT_LE(plan.batches.size(), kBatchesWanted);
  EXPECT_GT(plan.batches.size(), kBatchesWanted / 2);
}

TEST(DeviceBatches, ALargeTensorIsCutAtWindows) {
  std::vector<std::byte> memory(3 * kWindow);
  const std::vector items = {item(100, 2 * kWindow, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(2 * kWindow + 100, memory), 2);
  ASSERT_EQ(plan.batches.size(), 3U);
  EXPECT_EQ(plan.batches[1].slab, kBatchSlabs);
  EXPECT_EQ(bytes_of(plan.batches[0]) + bytes_of(plan.batches[1]) + bytes_of(plan.batches[2]),
            2 * kWindow);
  EXPECT_EQ(last_of(plan, 1, 0), 2U);
}

TEST(DeviceBatches, LanesTakeTurnsAndEachHasItsLast) {
  constexpr std::uint64_t kCount = 2 * CudaDevice::kLanes + 1;
  std::vector<std::byte> memory(kCount * kWindow);
  const std::vector items = {item(0, kCount * kWindow, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(kCount * kWindow, memory), 2);
  ASSERT_EQ(plan.batches.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(plan.batches[i].lane, i % CudaDevice::kLanes);
  ASSERT_EQ(plan.last[1].size(), CudaDevice::kLanes);
  for (const auto& [place, last] : plan.last[1]) {
    EXPECT_EQ(plan.batches[last].lane, place.second);
    EXPECT_GE(last, kCount - CudaDevice::kLanes);
  }
}

TEST(DeviceBatches, EachDeviceOfAGroupHasItsOwnLast) {
  std::vector<std::byte> memory(kSlab);
  const std::vector items = {item(0, 64, 1, 1), item(64, 64, 1, 0), item(128, 64, 1, 1)};
  const DevicePlan plan = plan_batches(items, image_of(192, memory), 2);
  ASSERT_EQ(plan.last[1].size(), 2U);
  EXPECT_EQ(plan.batches[last_of(plan, 1, 0)].device, 0);
  EXPECT_EQ(plan.batches[last_of(plan, 1, 1)].device, 1);
  EXPECT_EQ(plan.batches[last_of(plan, 1, 1)].parts.size(), 2U);
}

TEST(DeviceBatches, ARingIsFilledInFileOrderSlabBySlab) {
  std::vector<std::byte> memory(2 * kSlab);
  const std::vector items = {item(0, 3 * kSlab, 2, 0), item(3 * kSlab, kSlab, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(4 * kSlab, memory), 3);
  ASSERT_EQ(plan.batches.size(), 4U);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(plan.batches[i].slab, i);
  EXPECT_EQ(plan.of_group[0].size(), 4U);
  EXPECT_EQ(last_of(plan, 2, 0), 2U);
  EXPECT_EQ(last_of(plan, 1, 0), 3U);
}

TEST(DeviceBatches, WhatLiesBehindTheImageIsNotCopied) {
  std::vector<std::byte> memory(kSlab);
  const std::vector items = {item(kSlab, 64, 1, 0)};
  EXPECT_TRUE(plan_batches(items, image_of(kSlab, memory), 2).batches.empty());
}

TEST(DeviceBatches, AnEmptyTensorNeedsNone) {
  std::vector<std::byte> memory(kSlab);
  const std::vector items = {item(0, 0, 1, 0)};
  const DevicePlan plan = plan_batches(items, image_of(kSlab, memory), 2);
  EXPECT_TRUE(plan.batches.empty());
  EXPECT_TRUE(plan.last[1].empty());
}

}  // namespace
}  // namespace deepfreeze::device_batches_test
