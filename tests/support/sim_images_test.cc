// The states that a power cut may leave on a SimDisk.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "support/sim_disk.h"

namespace deepfreeze::sim_images_test {
namespace {

constexpr std::size_t kLimit = 5000;  // above the number of choices of every small case here
constexpr std::uint64_t kSeed = 71;
constexpr const char* kMissing = "(missing)";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The different contents that `name` has over all images.
std::set<std::string> outcomes(const SimDisk& disk, std::string_view name) {
  std::set<std::string> found;
  for (const auto& image : disk.crash_images(kLimit, kSeed)) {
    found.insert(image->contents(name).value_or(kMissing));
  }
  return found;
}

using Outcomes = std::set<std::string>;

TEST(CrashImages, WithNothingPendingThereIsOne) {
  SimDisk disk;
  disk.plant("a", "text");
  const auto images = disk.crash_images(kLimit, kSeed);
  ASSERT_EQ(images.size(), 1U);
  EXPECT_EQ(images[0]->label(), "nothing lost");
  EXPECT_EQ(images[0]->contents("a"), "text");
  EXPECT_TRUE(images[0]->make_dir("power-is-on"));
}

TEST(CrashImages, AnUnsyncedWriteMayBeLostOrLeaveOnlyItsSize) {
  SimDisk disk;
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  EXPECT_EQ(outcomes(disk, "a"), (Outcomes{"", "text", std::string(4, '\0')}));
  ASSERT_TRUE(file->sync());
  EXPECT_EQ(outcomes(disk, "a"), Outcomes{"text"});
}

TEST(CrashImages, AnUnsyncedWriteMayShowWhatAnotherFileHadAtThatPlace) {
  SimDisk disk;
  disk.plant("older", "0123456789");
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(file->write_at(2, bytes_of("text")));
  const Outcomes expected = {"", std::string("\0\0text", 6), std::string(6, '\0'),
                             std::string("\0\0", 2) + "2345"};
  EXPECT_EQ(outcomes(disk, "a"), expected);
  ASSERT_TRUE(disk.remove_file("older"));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "a"), expected);
}

TEST(CrashImages, AnUnsyncedNameMayBeLostThoughItsDataIsDurable) {
  SimDisk disk;
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  EXPECT_EQ(outcomes(disk, "a"), (Outcomes{kMissing, "text"}));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "a"), Outcomes{"text"});
}

TEST(CrashImages, ASyncedDirectoryMakesNoDataDurable) {
  SimDisk disk;
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(file->truncate(3));
  ASSERT_TRUE(file->write_at(0, bytes_of("abc")));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "a"), (Outcomes{"", "abc", std::string(3, '\0')}));
}

TEST(CrashImages, AnUnsyncedRenameIsWholeOrNotAtAll) {
  SimDisk disk;
  ASSERT_TRUE(write_new_file(disk, "tmp", "text"));
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(disk.rename_no_replace("tmp", "final"));
  std::set<std::vector<std::string>> listings;
  for (const auto& image : disk.crash_images(kLimit, kSeed)) listings.insert(image->list_all());
  EXPECT_EQ(listings, (std::set<std::vector<std::string>>{{"final"}, {"tmp"}}));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "tmp"), Outcomes{kMissing});
  EXPECT_EQ(outcomes(disk, "final"), Outcomes{"text"});
}

TEST(CrashImages, ARenameMayArriveThoughTheCreationDidNot) {
  SimDisk disk;
  ASSERT_TRUE(write_new_file(disk, "tmp", "text"));
  ASSERT_TRUE(disk.rename_no_replace("tmp", "final"));
  std::set<std::vector<std::string>> listings;
  for (const auto& image : disk.crash_images(kLimit, kSeed)) listings.insert(image->list_all());
  EXPECT_EQ(listings, (std::set<std::vector<std::string>>{{}, {"final"}, {"tmp"}}));
}

TEST(CrashImages, AnUnsyncedReplacementLeavesTheOldOrTheNew) {
  SimDisk disk;
  disk.plant("final", "old");
  ASSERT_TRUE(write_new_file(disk, "tmp", "new"));
  ASSERT_TRUE(disk.rename_replacing("tmp", "final"));
  EXPECT_EQ(outcomes(disk, "final"), (Outcomes{"old", "new"}));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "final"), Outcomes{"new"});
  EXPECT_EQ(outcomes(disk, "tmp"), Outcomes{kMissing});
}

TEST(CrashImages, ARenamedFileMayLackTheDataThatNobodySynced) {
  SimDisk disk;
  auto file = disk.create("tmp", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  ASSERT_TRUE(disk.rename_no_replace("tmp", "final"));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "final"), (Outcomes{"", "text", std::string(4, '\0')}));
}

TEST(CrashImages, ARenameBetweenDirectoriesIsDurableWithItsTarget) {
  SimDisk disk;
  disk.plant("from/a", "text");
  disk.plant("to/other", "");
  ASSERT_TRUE(disk.rename_no_replace("from/a", "to/a"));
  ASSERT_TRUE(disk.sync_dir("from"));
  EXPECT_EQ(outcomes(disk, "to/a"), (Outcomes{kMissing, "text"}));
  ASSERT_TRUE(disk.sync_dir("to"));
  EXPECT_EQ(outcomes(disk, "to/a"), Outcomes{"text"});
  EXPECT_EQ(outcomes(disk, "from/a"), Outcomes{kMissing});
}

TEST(CrashImages, ANewDirectoryNeedsItsParentSynced) {
  SimDisk disk;
  ASSERT_TRUE(disk.make_dir("d"));
  ASSERT_TRUE(write_new_file(disk, "d/a", "text"));
  ASSERT_TRUE(disk.sync_dir("d"));
  EXPECT_EQ(outcomes(disk, "d/a"), (Outcomes{kMissing, "text"}));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "d/a"), Outcomes{"text"});
}

TEST(CrashImages, ARemovedNameMayComeBack) {
  SimDisk disk;
  disk.plant("d/a", "text");
  ASSERT_TRUE(disk.remove_file("d/a"));
  EXPECT_EQ(outcomes(disk, "d/a"), (Outcomes{kMissing, "text"}));
  ASSERT_TRUE(disk.sync_dir("d"));
  EXPECT_EQ(outcomes(disk, "d/a"), Outcomes{kMissing});
  ASSERT_TRUE(disk.remove_dir("d"));
  std::set<std::vector<std::string>> listings;
  for (const auto& image : disk.crash_images(kLimit, kSeed)) listings.insert(image->list_all());
  EXPECT_EQ(listings, (std::set<std::vector<std::string>>{{}, {"d/"}}));
}

TEST(CrashImages, ALongWriteMayBeTornBetweenSectors) {
  SimDisk disk;
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(disk.sync_dir(""));
  const std::string data(1300, 'x');
  ASSERT_TRUE(file->write_at(0, bytes_of(data)));
  Outcomes expected = {"", data, std::string(1300, '\0')};
  for (const std::size_t prefix : {512U, 1024U}) {
    expected.insert(data.substr(0, prefix));
    expected.insert(data.substr(0, prefix) + std::string(1300 - prefix, '\0'));
  }
  EXPECT_EQ(outcomes(disk, "a"), expected);
}

TEST(CrashImages, AShortWriteIsNeverTorn) {
  SimDisk disk;
  auto file = disk.create("b", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, bytes_of(std::string(512, 'n'))));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "b"), (Outcomes{"", std::string(512, 'n'), std::string(512, '\0')}));
}

TEST(CrashImages, ALaterWriteMayArriveBeforeAnEarlierOne) {
  SimDisk disk;
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(file->write_at(4, bytes_of("data")));
  ASSERT_TRUE(file->write_at(0, bytes_of("head")));
  const Outcomes found = outcomes(disk, "a");
  EXPECT_TRUE(found.contains("head"));
  EXPECT_TRUE(found.contains(std::string(4, '\0') + "data"));
  EXPECT_TRUE(found.contains("head" + std::string(4, '\0')));
}

TEST(CrashImages, AnIgnoredSyncLeavesEverythingPending) {
  SimDisk disk;
  disk.ignore_sync(2);  // of the file
  disk.ignore_sync(4);  // the second of the directory
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  ASSERT_TRUE(disk.sync_dir(""));
  EXPECT_TRUE(outcomes(disk, "a").contains(""));
  EXPECT_FALSE(outcomes(disk, "a").contains(kMissing));
  ASSERT_TRUE(disk.sync_dir(""));
  ASSERT_TRUE(write_new_file(disk, "b", "text"));
  EXPECT_EQ(outcomes(disk, "b"), (Outcomes{kMissing, "text"}));
}

TEST(CrashImages, EachIgnoredSyncOfAPublicationIsNoticed) {
  const auto publish = [](SimDisk& disk) {
    ASSERT_TRUE(disk.make_dir("d"));
    ASSERT_TRUE(disk.sync_dir(""));
    ASSERT_TRUE(write_new_file(disk, "d/tmp", "text"));
    ASSERT_TRUE(disk.rename_no_replace("d/tmp", "d/final"));
    ASSERT_TRUE(disk.sync_dir("d"));
  };
  SimDisk whole;
  publish(whole);
  EXPECT_EQ(outcomes(whole, "d/final"), Outcomes{"text"});
  for (const SimOperation& operation : whole.operations()) {
    using enum SimOperationKind;
    if (operation.kind != kSync && operation.kind != kSyncDir) continue;
    SimDisk disk;
    disk.ignore_sync(operation.index);
    publish(disk);
    EXPECT_GT(outcomes(disk, "d/final").size(), 1U) << operation.index;
  }
}

TEST(CrashImages, ACrashAtAnOperationLeavesThatOneOut) {
  SimDisk disk;
  disk.crash_at(3);
  ASSERT_TRUE(write_new_file(disk, "a", "text"));
  EXPECT_FALSE(disk.sync_dir(""));
  EXPECT_EQ(outcomes(disk, "a"), (Outcomes{kMissing, "text"}));
}

TEST(CrashImages, UpToTenNamesAllSubsetsAppear) {
  SimDisk disk;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(disk.make_dir("d" + std::to_string(i)));
  EXPECT_EQ(disk.crash_images(kLimit, kSeed).size(), 1024U);
}

TEST(CrashImages, BeyondThatTheExtremesAndSingleOnesComeFirst) {
  constexpr std::size_t kCount = 20;
  SimDisk disk;
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_TRUE(disk.make_dir("d" + std::to_string(i)));
  std::multiset<std::size_t> sizes;
  const auto images = disk.crash_images(200, kSeed);
  for (const auto& image : images) sizes.insert(image->list_all().size());
  EXPECT_EQ(images.size(), 200U);
  EXPECT_EQ(sizes.count(0), 1U);
  EXPECT_EQ(sizes.count(kCount), 1U);
  EXPECT_EQ(sizes.count(1), kCount);
  EXPECT_EQ(sizes.count(kCount - 1), kCount);
}

TEST(CrashImages, WhenFewAreWantedTheyAreTheStatesThatWentByInOrder) {
  constexpr std::size_t kCount = 20;
  SimDisk disk;
  std::set<std::vector<std::string>> expected = {{}};
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(disk.make_dir("d" + std::to_string(i)));
    expected.insert(disk.list_all());
  }
  std::set<std::vector<std::string>> found;
  for (const auto& image : disk.crash_images(kCount + 1, kSeed)) found.insert(image->list_all());
  EXPECT_EQ(found, expected);
}

TEST(CrashImages, AreTheSameForTheSameSeedAndAllDifferentFromEachOther) {
  SimDisk disk;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(write_new_file(disk, "f" + std::to_string(i), "text"));
  const auto labels = [&disk](std::uint64_t seed) {
    std::vector<std::string> found;
    disk.for_each_crash_image(300, seed, [&](SimDisk& image) { found.push_back(image.label()); });
    return found;
  };
  const auto first = labels(kSeed);
  EXPECT_EQ(first, labels(kSeed));
  EXPECT_NE(first, labels(kSeed + 1));
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 300U);
}

TEST(CrashImages, TheLabelSaysWhatWasLost) {
  SimDisk disk;
  auto file = disk.create("tmp", Access::kBuffered).value();
  ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  ASSERT_TRUE(file->close());
  ASSERT_TRUE(disk.rename_no_replace("tmp", "final"));
  std::set<std::string> labels;
  for (const auto& image : disk.crash_images(kLimit, kSeed)) labels.insert(image->label());
  EXPECT_TRUE(labels.contains("#1 write tmp lost; "));
  EXPECT_TRUE(labels.contains("#1 write tmp torn at 0 with full size; "));
  EXPECT_TRUE(labels.contains("#2 rename tmp to final lost; "));
}

TEST(CrashImages, DataOfFilesThatNoNameCanReachMultipliesNothing) {
  SimDisk disk;
  auto file = disk.create("a", Access::kBuffered).value();
  ASSERT_TRUE(disk.sync_dir(""));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(file->write_at(0, bytes_of("text")));
  ASSERT_TRUE(disk.remove_file("a"));
  ASSERT_TRUE(disk.sync_dir(""));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(disk.make_dir("d" + std::to_string(i)));
  EXPECT_EQ(disk.crash_images(1024, kSeed).size(), 1024U);  // every subset of the ten
}

}  // namespace
}  // namespace deepfreeze::sim_images_test
