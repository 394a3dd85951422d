// Flushes to tiers that hold files packed.
#include <gtest/gtest.h>

#include <random>

#include "object/object_tier.h"
#include "packed/packed_fixture.h"
#include "support/fake_s3.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;

// A run with one checkpoint, of one file that is worth packing.
class PackedFlush : public testing::Test {
 protected:
  PackedFlush() {
    slow_link_.note_sent(16 * kMiB, 1'000);
    fast_link_.note_sent(16 * kMiB, 0.0001);
    RunListing listing = read_run(near_).value();
    const std::string run_id = listing.run.run_id;
    const Identity identity = make_identity(run_id, {1, 7, 1, 0xabc});
    DataFile file = mixed_file(kBlocksOfEach);
    file.header.identity = identity;
    EXPECT_TRUE(begin_attempt(near_, name_of(identity)));
    EXPECT_TRUE(
        write_part(near_, attempt_dir_name(name_of(identity)) + "/" + part_file_name(identity.part),
                   file.header, file.data));
    EXPECT_TRUE(seal_parts(near_, name_of(identity), std::span(&identity.part, 1)));
    saved_ = commit_attempt(near_, make_request(identity)).value();
    path_ = path_in_run(saved_, saved_.files.front().name);
  }

  Status flush(Vfs& from, TierStore& to, PackingJudge* judge, std::uint64_t* sent = nullptr) {
    RateLimit unlimited(0);
    const std::atomic<bool> never{false};
    DF_TRY(const RunListing listing, read_run(from));
    DF_TRY_VOID(copy_history(listing, from, to));
    return flush_attempt(from, saved_, to,
                         {.rate = unlimited,
                          .stop = never,
                          .on_bytes =
                              [&](std::uint64_t, std::uint64_t more) {
                                if (sent != nullptr) *sent += more;
                              },
                          .packing = judge},
                         nullptr);
  }
  // The file on a disk, as it lies there.
  [[nodiscard]] std::string stored(SimDisk& disk) { return disk.contents(path_).value_or(""); }

  static constexpr std::size_t kBlocksOfEach = 8;
  SimDisk near_;
  NearRun run_{near_};
  SimDisk far_;
  VfsTierStore store_{far_};
  PackingJudge slow_link_;
  PackingJudge fast_link_;
  Manifest saved_;
  std::string path_;
};

TEST_F(PackedFlush, ATierBehindASlowLinkHasFewerBytesAndTheSameManifest) {
  std::uint64_t sent = 0;
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_, &sent)), "");
  EXPECT_EQ(stored(far_).substr(0, 8), "DFpacked");
  EXPECT_LT(stored(far_).size(), saved_.files.front().bytes * 3 / 4);
  EXPECT_EQ(sent, stored(far_).size());
  const std::string manifest = path_in_run(saved_, kManifestFile);
  EXPECT_EQ(far_.contents(manifest), near_.contents(manifest));
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
  EXPECT_TRUE(has_sealed_file(far_, saved_, saved_.files.front()));
}

TEST_F(PackedFlush, AFastLinkAndNoWishGivePlainFiles) {
  ASSERT_EQ(text_of(flush(near_, store_, &fast_link_)), "");
  EXPECT_EQ(stored(far_), stored(near_));
  SimDisk other;
  VfsTierStore plain(other);
  ASSERT_EQ(text_of(flush(near_, plain, nullptr)), "");
  EXPECT_EQ(stored(other), stored(near_));
}

// Nothing is known of the link: blocks go as they are, in a file that may have packed ones.
TEST_F(PackedFlush, ALinkThatIsNotKnownGetsPlainBlocks) {
  PackingJudge judge;
  ASSERT_EQ(text_of(flush(near_, store_, &judge)), "");
  EXPECT_EQ(stored(far_).substr(0, 8), "DFpacked");
  EXPECT_GT(stored(far_).size(), stored(near_).size());
  EXPECT_LE(stored(far_).size(), stored(near_).size() + 2 * kPageBytes);
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

TEST_F(PackedFlush, CopiesOfAPackedFileArePlainOrPackedAnew) {
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_)), "");
  SimDisk fetched;
  VfsTierStore plain(fetched);
  ASSERT_EQ(text_of(flush(far_, plain, nullptr)), "");
  EXPECT_EQ(stored(fetched), stored(near_));
  SimDisk farther;
  VfsTierStore packed(farther);
  ASSERT_EQ(text_of(flush(far_, packed, &slow_link_)), "");
  EXPECT_EQ(stored(farther), stored(far_));
  EXPECT_EQ(broken_tier(farther, run_.run_id()), "");
}

// A name without a manifest, as a rename leaves it whose data never reached the disk.
TEST_F(PackedFlush, AFileThatIsCutOffIsSentAgainBeforeItCounts) {
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_)), "");
  const std::string whole = stored(far_);
  ASSERT_TRUE(far_.remove_file(path_in_run(saved_, kManifestFile)));
  for (const std::size_t left : {whole.size() - 1, whole.size() * 2 / 3}) {
    far_.plant(path_, whole.substr(0, left));
    EXPECT_FALSE(has_sealed_file(far_, saved_, saved_.files.front())) << left;
    ASSERT_EQ(text_of(flush(near_, store_, &slow_link_)), "") << left;
    EXPECT_EQ(stored(far_), whole);
    ASSERT_TRUE(far_.remove_file(path_in_run(saved_, kManifestFile)));
  }
}

TEST_F(PackedFlush, AMachineThatCantPackSendsPlainFiles) {
  set_log_sink([](std::string_view) {});
  slow_link_.give_up(Error(ErrorCode::kUnsupported, "no library"));
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_)), "");
  set_log_sink({});
  EXPECT_EQ(stored(far_), stored(near_));
}

TEST_F(PackedFlush, ASecondFlushSendsNothing) {
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_)), "");
  const std::string before = stored(far_);
  const std::size_t operations = far_.operation_count();
  std::uint64_t sent = 0;
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_, &sent)), "");
  EXPECT_EQ(sent, 0U);
  EXPECT_EQ(stored(far_), before);
  EXPECT_LT(far_.operation_count() - operations, 20U);
}

// Wherever the bit is, no other bytes come back from the tier, and the copy is made anew.
TEST_F(PackedFlush, NoBitThatIsFlippedOnTheTierComesBack) {
  ASSERT_EQ(text_of(flush(near_, store_, &slow_link_)), "");
  const std::uint64_t bits = 8 * stored(far_).size();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 120; ++i) {
    // A third in the lead and the header, a third in the index.
    std::uint64_t bit = random() % bits;
    if (i % 3 == 1) bit %= 8 * (kPackedLeadBytes + kPageBytes);
    if (i % 3 == 2) bit = bits - 1 - bit % (8 * 256);
    const auto tier = far_.clone();
    ASSERT_TRUE(tier->flip_bit(path_, bit));
    SimDisk fetched;
    VfsTierStore plain(fetched);
    const Status copied = flush(*tier, plain, nullptr);
    ASSERT_FALSE(copied) << "bit " << bit;
    EXPECT_EQ(copied.error().code(), ErrorCode::kCorrupt) << "bit " << bit;
    EXPECT_FALSE(fetched.contents(path_)) << "bit " << bit;
    EXPECT_NE(broken_tier(*tier, run_.run_id()), "") << "bit " << bit;
  }
}

TEST_F(PackedFlush, AProcessThatDiesLeavesAWholeFileOrNone) {
  std::size_t whole = 0;
  std::size_t index = 0;
  for (bool has_died = true; has_died; ++index) {
    SimDisk far;
    VfsTierStore store(far);
    far.kill_at(index);
    has_died = !flush(near_, store, &slow_link_);
    far.revive();
    ASSERT_EQ(broken_tier(far, run_.run_id()), "") << index;
    whole += has_sealed_file(far, saved_, saved_.files.front()) ? 1 : 0;
    ASSERT_EQ(text_of(flush(near_, store, &slow_link_)), "") << index;
    ASSERT_EQ(broken_tier(far, run_.run_id()), "") << index;
  }
  EXPECT_GT(whole, 1U);
  EXPECT_GT(index, 10U);
}

TEST_F(PackedFlush, ATierWithoutSpaceEndsInAnError) {
  far_.set_bytes_free(kMiB / 2);
  const Status flushed = flush(near_, store_, &slow_link_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(far_.open_files(), 0U);
}

TEST_F(PackedFlush, ABlockThatIsBadOnTheNearTierIsNotPacked) {
  ASSERT_TRUE(near_.flip_bit(path_, 8 * (kPageBytes + 3 * kBlockBytes)));
  const Status flushed = flush(near_, store_, &slow_link_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt);
  EXPECT_FALSE(far_.contents(path_));
}

// In parts, fewer than the plain file would have had; the store's checksum stands for the plain
// bytes.
TEST_F(PackedFlush, AnObjectStoreTakesPackedFiles) {
  FakeTime time;
  const auto objects = std::make_shared<FakeS3>(time);
  const auto tier =
      make_object_tier(std::make_shared<S3Client>(FakeS3::settings(objects, time)), 64 * 1024);
  ASSERT_EQ(text_of(flush(near_, *tier, &slow_link_)), "");
  EXPECT_EQ(objects->open_uploads(), 0U);
  EXPECT_EQ(broken_tier(tier->view(), run_.run_id()), "");
  const auto raw = tier->view().open_read(path_, Access::kBuffered).value();
  EXPECT_LT(raw->size().value(), saved_.files.front().bytes * 3 / 4);
  const auto part = open_part(tier->view(), path_, Access::kBuffered).value();
  const std::string plain = stored(near_);
  EXPECT_EQ(part->kept_crc32c(), crc32c(std::as_bytes(std::span(plain))));
}

}  // namespace
}  // namespace deepfreeze
