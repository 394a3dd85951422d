#include "manifest/node_marker.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "manifest/name_kind.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::node_marker_test {
namespace {

constexpr std::size_t kImagesMax = 2000;

TEST(NodeMarker, IsMadeOnceAndFoundAgain) {
  SimDisk disk;
  const auto made = find_or_make_node(disk, "host7");
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->host, "host7");
  EXPECT_EQ(disk.pending_count(), 0U);
  EXPECT_EQ(find_or_make_node(disk, "another").value(), *made);
  SimDisk other;
  EXPECT_NE(find_or_make_node(other, "host7")->node, made->node);
}

// Digits that somebody was told may be in a claim already: they must not change.
TEST(NodeMarker, DigitsThatWereToldSurviveAPowerCut) {
  SimDisk counted;
  ASSERT_TRUE(find_or_make_node(counted, "h"));
  for (std::size_t index = 0; index < counted.operation_count(); ++index) {
    SimDisk disk;
    disk.crash_at(index);
    EXPECT_FALSE(find_or_make_node(disk, "h"));
    for (const auto& image : disk.crash_images(kImagesMax, index)) {
      const auto found = find_or_make_node(*image, "h");
      ASSERT_TRUE(found) << index << ", " << image->label();
      for (const auto& later : image->crash_images(kImagesMax, 1)) {
        EXPECT_EQ(find_or_make_node(*later, "h").value(), *found)
            << index << ", " << later->label();
      }
    }
  }
}

TEST(NodeMarker, EverySyncOfItIsNeeded) {
  SimDisk counted;
  ASSERT_TRUE(find_or_make_node(counted, "h"));
  std::size_t syncs = 0;
  for (const SimOperation& operation : counted.operations()) {
    const bool is_sync =
        operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
    if (!is_sync) continue;
    ++syncs;
    SimDisk disk;
    disk.ignore_sync(operation.index);
    const auto told = find_or_make_node(disk, "h");
    ASSERT_TRUE(told);
    bool is_betrayed = false;
    for (const auto& image : disk.crash_images(kImagesMax, 1)) {
      if (find_or_make_node(*image, "h") != *told) is_betrayed = true;
    }
    EXPECT_TRUE(is_betrayed) << "sync " << operation.index;
  }
  EXPECT_EQ(syncs, 2U);
}

// The process that made it has died before its own sync: the one that finds it syncs.
TEST(NodeMarker, OneThatIsFoundIsMadeDurableToo) {
  SimDisk counted;
  ASSERT_TRUE(find_or_make_node(counted, "h"));
  SimDisk disk;
  disk.kill_at(counted.operation_count() - 1);
  EXPECT_FALSE(find_or_make_node(disk, "h"));
  disk.revive();
  const auto found = find_or_make_node(disk, "h");
  ASSERT_TRUE(found);
  EXPECT_EQ(disk.pending_count(), 0U);
}

TEST(NodeMarker, ADirectoryWithoutOneHasNone) {
  SimDisk disk;
  EXPECT_EQ(find_node_marker(disk).value(), std::nullopt);
}

TEST(NodeMarker, ADamagedOneIsNotReplaced) {
  SimDisk disk;
  const std::string good = encode_node({.node = 7, .host = "h"});
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  disk.plant(kNodeFile, bad);
  const auto found = find_or_make_node(disk, "h");
  ASSERT_EQ(code_of(found), ErrorCode::kCorrupt);
  EXPECT_TRUE(found.error().message().contains(kNodeFile)) << found.error().message();
  EXPECT_EQ(read_file(disk, kNodeFile, 1 << 20).value(), bad);
}

TEST(NodeMarker, AnErrorOfTheDiskMakesNoSecondOne) {
  SimDisk disk;
  const auto made = find_or_make_node(disk, "h");
  disk.fail_read_at(disk.read_count(), EIO);
  EXPECT_EQ(code_of(find_or_make_node(disk, "h")), ErrorCode::kIo);
  EXPECT_EQ(find_or_make_node(disk, "h").value(), made.value());
}

// Digits that may not last are told to nobody.
TEST(NodeMarker, ADiskThatFailsToWriteOneMakesNone) {
  SimDisk counted;
  ASSERT_TRUE(find_or_make_node(counted, "h"));
  for (std::size_t index = 0; index < counted.operation_count(); ++index) {
    SimDisk disk;
    disk.fail_at(index, EIO);
    EXPECT_EQ(code_of(find_or_make_node(disk, "h")), ErrorCode::kIo) << index;
    EXPECT_TRUE(find_or_make_node(disk, "h")) << index;
  }
}

TEST(NodeMarker, PresenceIsSeenByThoseWhoKnowTheNonce) {
  SimDisk disk;
  SimDisk clone;
  constexpr std::uint64_t kNonce = 0xabcdef;
  ASSERT_TRUE(show_presence(disk, kNonce));
  EXPECT_EQ(sees_presence(disk, kNonce), true);
  EXPECT_EQ(sees_presence(disk, kNonce + 1), false);
  EXPECT_EQ(sees_presence(clone, kNonce), false);
  EXPECT_EQ(kind_in_run(disk.list("")->front()), NameKind::kTemporary) << "debris, if it is left";
  ASSERT_TRUE(hide_presence(disk, kNonce));
  EXPECT_EQ(sees_presence(disk, kNonce), false);
}

}  // namespace
}  // namespace deepfreeze::node_marker_test
