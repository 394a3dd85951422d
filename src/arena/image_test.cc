#include "arena/image.h"

#include <gtest/gtest.h>

#include <array>

namespace deepfreeze::image_test {
namespace {

constexpr std::uint64_t kSlab = 64;

// Sections of 70, 64, 1 and twice 0 bytes: slabs 0 and 1, 2, 3.
Image image_of_three(std::span<std::byte> memory) {
  const std::array<std::uint64_t, 5> bytes{70, 64, 1, 0, 0};
  return {memory, lay_sections(bytes, kSlab), kSlab};
}

TEST(Image, SectionsBeginAtSlabsAndEmptyOnesTakeNoRoom) {
  const Image image = image_of_three({});
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const Section& section : image.sections()) places.emplace_back(section.begin, section.end);
  EXPECT_EQ(places, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{
                        {0, 70}, {128, 192}, {192, 193}, {193, 193}, {193, 193}}));
  EXPECT_EQ(image.slab_count(), 4U);
  EXPECT_EQ(image.end(), 193U);
}

TEST(Image, ASlabBelongsToOneSectionAndEndsWithIt) {
  std::array<std::byte, 193> memory{};
  const Image image = image_of_three(memory);
  EXPECT_FALSE(image.is_ring());
  std::vector<std::size_t> owners;
  std::vector<std::size_t> sizes;
  for (std::uint64_t slab = 0; slab < image.slab_count(); ++slab) {
    owners.push_back(image.section_of(slab));
    sizes.push_back(image.slab(slab).size());
    EXPECT_EQ(image.slab(slab).data(), memory.data() + slab * kSlab);
  }
  EXPECT_EQ(owners, (std::vector<std::size_t>{0, 0, 1, 2}));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{64, 6, 64, 1}));
}

TEST(Image, WhatLiesBetweenSectionsIsNotHeld) {
  const Image image = image_of_three({});
  EXPECT_EQ(image.held(64, 16), 6U);
  EXPECT_EQ(image.held(80, 16), 0U);
  EXPECT_EQ(image.held(128, 16), 16U);
  EXPECT_EQ(image.held(192, 16), 1U);
}

TEST(Image, InARingASlabTakesThePlaceOfAnOlderOne) {
  std::array<std::byte, 2 * kSlab> memory{};
  const Image image = image_of_three(memory);
  EXPECT_TRUE(image.is_ring());
  EXPECT_EQ(image.slots(), 2U);
  EXPECT_EQ(image.slab(2).data(), memory.data());
  EXPECT_EQ(image.slab(3).data(), memory.data() + kSlab);
}

TEST(Image, OfFilesWithoutDataHasNoSlab) {
  const std::array<std::uint64_t, 2> bytes{0, 0};
  const Image image({}, lay_sections(bytes, kSlab), kSlab);
  EXPECT_EQ(image.slab_count(), 0U);
  EXPECT_EQ(image.end(), 0U);
  EXPECT_EQ(Image().slab_count(), 0U);
}

}  // namespace
}  // namespace deepfreeze::image_test
