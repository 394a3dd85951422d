// flush, copy_file and history_copy over two simulated disks.
#include "tiering/flush.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/fail_point.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "manifest/commit.h"
#include "manifest/sealed_parts.h"
#include "support/passing_vfs.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kImagesMax = 200;

class FlushTest : public testing::Test {
 protected:
  FlushTest() {
    set_log_sink([](std::string_view) {});
  }  // records are rebuilt
  ~FlushTest() override { set_log_sink({}); }

  SimDisk near_;
  SimDisk far_;
  NearRun run_{near_};
  VfsTierStore store_{far_};
};

TEST_F(FlushTest, ATierIsAWholeRun) {
  const Manifest first = run_.save(1);
  const Manifest second = run_.save(2, 3);
  EXPECT_EQ(text_of(flush_to(near_, first, store_)), "");
  EXPECT_EQ(text_of(flush_to(near_, second, store_)), "");
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
  for (const std::string& name : near_.list_all()) {
    EXPECT_EQ(near_.contents(name), far_.contents(name)) << name;
  }
  EXPECT_EQ(near_.list_all(), far_.list_all());
}

TEST_F(FlushTest, NothingIsSentTwice) {
  const Manifest saved = run_.save(1, 2);
  ASSERT_EQ(text_of(flush_to(near_, saved, store_)), "");
  const std::uint64_t before = far_.bytes_written();
  EXPECT_EQ(text_of(flush_to(near_, saved, store_)), "");
  // The manifest alone is offered again, and refused.
  EXPECT_LT(far_.bytes_written() - before, kTestDataBytes);
  EXPECT_EQ(near_.list_all(), far_.list_all());
}

// A store compares each piece with the checksum that comes with it.
class ComparingStore final : public TierStore {
 public:
  explicit ComparingStore(TierStore& below) : below_(below) {}
  Result<std::unique_ptr<Upload>> begin(std::string_view name, std::uint64_t bytes,
                                        IfTaken if_taken) override {
    DF_TRY(auto upload, below_.begin(name, bytes, if_taken));
    return std::make_unique<Comparing>(*this, std::move(upload));
  }
  Status settle(std::string_view directory) override { return below_.settle(directory); }
  [[nodiscard]] Vfs& view() override { return below_.view(); }
  std::size_t compared = 0;

 private:
  class Comparing final : public Upload {
   public:
    Comparing(ComparingStore& store, std::unique_ptr<Upload> below)
        : store_(store), below_(std::move(below)) {}
    Status append(std::span<const std::byte> bytes, std::optional<std::uint32_t> crc) override {
      if (crc) ++store_.compared;
      EXPECT_EQ(crc.value_or(crc32c(bytes)), crc32c(bytes));
      return below_->append(bytes, crc);
    }
    void end_here() override { below_->end_here(); }
    Status finish() override { return below_->finish(); }

   private:
    ComparingStore& store_;
    const std::unique_ptr<Upload> below_;
  };

  TierStore& below_;
};

TEST_F(FlushTest, EachPieceOfADataFileComesWithItsChecksum) {
  const Manifest saved = run_.save(1, 2);
  ComparingStore store(store_);
  ASSERT_EQ(text_of(flush_to(near_, saved, store)), "");
  EXPECT_GE(store.compared, 4U);  // a header and a slab of each file
}

// Every bit of header and data, a bit at a time in steps that are prime to all sizes.
TEST_F(FlushTest, NoBitThatIsFlippedReachesTheTier) {
  const Manifest saved = run_.save(1);
  const std::string path = path_in_run(saved, saved.files.front().name);
  const std::uint64_t bits = 8 * saved.files.front().bytes;
  for (std::uint64_t bit = 0; bit < bits; bit += 211) {
    const auto near = near_.clone();
    SimDisk far;
    VfsTierStore store(far);
    ASSERT_TRUE(near->flip_bit(path, bit));
    const Status flushed = flush_to(*near, saved, store);
    ASSERT_FALSE(flushed) << "bit " << bit;
    EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt) << flushed.error().message();
    EXPECT_FALSE(far.contents(path)) << "bit " << bit;
    EXPECT_EQ(far.open_files(), 0U);
  }
}

TEST_F(FlushTest, AFileOfAnotherStepIsRefused) {
  const Manifest first = run_.save(1);
  const Manifest second = run_.save(2);
  const std::string other = near_.contents(path_in_run(second, second.files.front().name)).value();
  near_.plant(path_in_run(first, first.files.front().name), other);
  const Status flushed = flush_to(near_, first, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

TEST_F(FlushTest, AFileThatIsLongerThanItsManifestSaysIsRefused) {
  const Manifest saved = run_.save(1);
  const std::string path = path_in_run(saved, saved.files.front().name);
  near_.plant(path, near_.contents(path).value() + std::string(kPageBytes, '\0'));
  const Status flushed = flush_to(near_, saved, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(flushed.error().message().find("the manifest says"), std::string::npos);
}

// Of the same attempt, and sound by itself: only the manifest tells.
TEST_F(FlushTest, AFileInThePlaceOfItsNeighbourIsRefused) {
  const Manifest saved = run_.save(1, 2);
  ASSERT_EQ(saved.files[0].bytes, saved.files[1].bytes);
  const std::string other = near_.contents(path_in_run(saved, saved.files[0].name)).value();
  near_.plant(path_in_run(saved, saved.files[1].name), other);
  const Status flushed = flush_to(near_, saved, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt) << flushed.error().message();
  EXPECT_FALSE(far_.contents(path_in_run(saved, saved.files[1].name)));
}

// Sound by itself, and listed with its checksum: only its identity tells.
TEST_F(FlushTest, AFileOfAnotherAttemptThatTheManifestListsIsRefused) {
  for (const int changed : {0, 1, 2}) {
    Manifest saved = run_.save(static_cast<std::uint64_t>(changed) + 1);
    ManifestFile& file = saved.files.front();
    const std::string path = path_in_run(saved, file.name);
    Identity identity = read_part_header(near_, path)->header.identity;
    if (changed == 0) identity.run_id = "0123456789abcdef";
    if (changed == 1) ++identity.attempt_id;
    if (changed == 2) ++identity.step;
    const std::vector<std::byte> data = make_data(identity, kTestDataBytes);
    ASSERT_TRUE(near_.remove_file(path));
    ASSERT_TRUE(write_part(near_, path, make_header(identity, data), data));
    const PartHeader written = read_part_header(near_, path).value();
    file.bytes = written.file_bytes;
    file.header_crc = written.crc;
    near_.plant(path_in_run(saved, kManifestFile), encode_manifest(saved));
    const Status flushed = flush_to(near_, saved, store_);
    ASSERT_FALSE(flushed) << changed;
    EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt) << flushed.error().message();
    EXPECT_FALSE(far_.contents(path)) << changed;
  }
}

TEST_F(FlushTest, AMissingFileIsDamage) {
  const Manifest saved = run_.save(1);
  ASSERT_TRUE(near_.remove_file(path_in_run(saved, saved.files.front().name)));
  const Status flushed = flush_to(near_, saved, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt) << flushed.error().message();
}

TEST_F(FlushTest, AManifestThatHasChangedSinceItWasListedIsRefused) {
  Manifest saved = run_.save(1);
  saved.non_finite = 77;
  const Status flushed = flush_to(near_, saved, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCorrupt) << flushed.error().message();
  EXPECT_FALSE(far_.contents(path_in_run(saved, kManifestFile)));
}

// The first one counts: that of the call which failed.
TEST_F(FlushTest, AnErrorOfTheTierIsTold) {
  const Manifest saved = run_.save(1);
  for (std::size_t at = 0;; ++at) {
    SimDisk far;
    VfsTierStore store(far);
    far.fail_at(at, ENOSPC);
    const Status flushed = flush_to(near_, saved, store);
    if (!far.injected()) break;
    if (!flushed) {
      EXPECT_EQ(flushed.error().os_errno(), ENOSPC) << flushed.error().message();
    }
    ASSERT_LT(at, 1000U);
  }
}

TEST_F(FlushTest, AnErrorAtAnyCallIsRepairedByTheNextFlush) {
  const Manifest saved = run_.save(1, 2);
  for (std::size_t at = 0;; ++at) {
    SimDisk far;
    VfsTierStore store(far);
    far.fail_at(at, EIO);
    const Status flushed = flush_to(near_, saved, store);
    if (!far.injected()) break;
    EXPECT_EQ(broken_tier(far, run_.run_id()), "") << "call " << at;
    EXPECT_TRUE(!flushed || has_committed(far, saved)) << "call " << at;
    EXPECT_EQ(text_of(flush_to(near_, saved, store)), "") << "call " << at;
    EXPECT_TRUE(has_committed(far, saved)) << "call " << at;
    EXPECT_EQ(broken_tier(far, run_.run_id()), "") << "call " << at;
    ASSERT_LT(at, 1000U);
  }
}

// The call is carried out and reported as failed, as by a server that loses its answer.
TEST_F(FlushTest, ALostAnswerAtAnyCallIsRepairedByTheNextFlush) {
  const Manifest saved = run_.save(1, 2);
  for (std::size_t at = 0;; ++at) {
    SimDisk far;
    VfsTierStore store(far);
    far.fail_after(at, EIO);
    std::ignore = flush_to(near_, saved, store);
    if (!far.injected()) break;
    EXPECT_EQ(broken_tier(far, run_.run_id()), "") << "call " << at;
    EXPECT_EQ(text_of(flush_to(near_, saved, store)), "") << "call " << at;
    EXPECT_TRUE(has_committed(far, saved)) << "call " << at;
    ASSERT_LT(at, 1000U);
  }
}

TEST_F(FlushTest, AnErrorOfAnyReadIsRepairedByTheNextFlush) {
  const Manifest saved = run_.save(1, 2);
  const std::size_t reads = near_.read_count();
  ASSERT_EQ(text_of(flush_to(near_, saved, store_)), "");
  const std::size_t used = near_.read_count() - reads;
  for (std::size_t at = 0; at < used; ++at) {
    SimDisk far;
    VfsTierStore store(far);
    near_.fail_read_at(near_.read_count() + at, EIO);
    std::ignore = flush_to(near_, saved, store);
    EXPECT_EQ(broken_tier(far, run_.run_id()), "") << "read " << at;
    EXPECT_EQ(text_of(flush_to(near_, saved, store)), "") << "read " << at;
    EXPECT_TRUE(has_committed(far, saved)) << "read " << at;
  }
}

constexpr std::string_view kFailPoints[] = {"tier.created",  "tier.append",   "tier.written",
                                            "tier.renamed",  "tier.settled",  "flush.file",
                                            "flush.settled", "flush.checked", "flush.manifest_put"};

// A flusher ends at a durable step, for the first, second and third time that it comes there; what
// it has synced survives a power cut, and the next flusher completes the attempt.
TEST_F(FlushTest, AnEndAtAnyStepLeavesAWholeRun) {
  const Manifest saved = run_.save(1, 2);
  for (const std::string_view point : kFailPoints) {
    for (int pass = 1; pass <= 3; ++pass) {
      SimDisk far;
      VfsTierStore store(far);
      const std::string where = std::string(point) + " " + std::to_string(pass);
      ASSERT_TRUE(fail_points::arm(std::string(point) + "=error@" + std::to_string(pass)));
      const Status flushed = flush_to(near_, saved, store);
      fail_points::disarm();
      EXPECT_TRUE(!flushed || pass > 1) << where;
      EXPECT_EQ(broken_tier(far, run_.run_id()), "") << where;
      far.power_off();
      for (const auto& image : far.crash_images(kImagesMax, 0)) {
        ASSERT_EQ(broken_tier(*image, run_.run_id()), "") << where << ": " << image->label();
        VfsTierStore again(*image);
        ASSERT_EQ(text_of(flush_to(near_, saved, again)), "") << where << ": " << image->label();
        ASSERT_TRUE(has_committed(*image, saved)) << where << ": " << image->label();
      }
    }
  }
}

// The power of the tier goes at every call; a whole run is left, without the attempt or
// with all of it, and the next flush completes it.
TEST_F(FlushTest, APowerCutAtAnyCallLeavesAWholeRun) {
  const Manifest first = run_.save(1);
  const Manifest saved = run_.save(2, 2);
  SimDisk begun;
  VfsTierStore begun_store(begun);
  ASSERT_EQ(text_of(flush_to(near_, first, begun_store)), "");
  std::size_t images = 0;
  for (std::size_t at = 0;; ++at) {
    const auto far = begun.clone();
    VfsTierStore store(*far);
    far->crash_at(at);
    const bool is_over = flush_to(near_, saved, store).has_value();
    if (is_over) far->power_off();
    far->for_each_crash_image(kImagesMax, at, [&](SimDisk& image) {
      ++images;
      const std::string where = "call " + std::to_string(at) + ": " + image.label();
      ASSERT_EQ(broken_tier(image, run_.run_id()), "") << where;
      ASSERT_TRUE(has_committed(image, first)) << where;
      ASSERT_TRUE(!is_over || has_committed(image, saved)) << where;
      VfsTierStore again(image);
      ASSERT_EQ(text_of(flush_to(near_, saved, again)), "") << where;
      ASSERT_EQ(broken_tier(image, run_.run_id()), "") << where;
    });
    if (is_over) break;
    ASSERT_LT(at, 1000U);
  }
  EXPECT_GT(images, 400U);
  RecordProperty("crash_images", static_cast<int>(images));
}

// A flusher dies at every call without losing power; the next one then goes on, and the power goes
// once it has acknowledged the attempt.
TEST_F(FlushTest, WhatADeadFlusherLeftUnsyncedIsSyncedByTheNext) {
  const Manifest saved = run_.save(1, 2);
  std::size_t images = 0;
  for (std::size_t at = 0;; ++at) {
    SimDisk far;
    VfsTierStore store(far);
    far.kill_at(at);
    const bool is_over = flush_to(near_, saved, store).has_value();
    far.revive();
    ASSERT_EQ(text_of(flush_to(near_, saved, store)), "") << "call " << at;
    far.power_off();
    far.for_each_crash_image(kImagesMax, at, [&](SimDisk& image) {
      ++images;
      ASSERT_TRUE(has_committed(image, saved)) << "call " << at << ": " << image.label();
      ASSERT_EQ(broken_tier(image, run_.run_id()), "") << "call " << at << ": " << image.label();
    });
    if (is_over) break;
    ASSERT_LT(at, 1000U);
  }
  EXPECT_GT(images, 50U);
}

// Whether a flush that loses power at some call, and one that ends well, keep their promises if the
// sync of that number does nothing.
bool shows(Vfs& near, SimDisk& begun, const Manifest& saved, std::size_t ignored) {
  for (std::size_t cut = ignored + 1;; ++cut) {
    const auto far = begun.clone();
    VfsTierStore store(*far);
    far->ignore_sync(ignored);
    far->crash_at(cut);
    const bool is_over = flush_to(near, saved, store).has_value();
    if (is_over) far->power_off();
    bool has_shown = false;
    far->for_each_crash_image(kImagesMax, cut, [&](SimDisk& image) {
      const bool is_lost = is_over && !has_committed(image, saved);
      has_shown = has_shown || is_lost || !broken_tier(image, saved.run_id).empty();
    });
    if (has_shown || is_over) return has_shown;
  }
}

TEST_F(FlushTest, NoSyncCanBeLeftOut) {
  ASSERT_TRUE(copy_history(read_run(near_).value(), near_, store_));
  const Manifest saved = run_.save(1, 2);
  const auto far = far_.clone();
  VfsTierStore store(*far);
  ASSERT_EQ(text_of(flush_to(near_, saved, store)), "");
  std::size_t syncs = 0;
  for (const SimOperation& operation : far->operations()) {
    const bool is_sync =
        operation.kind == SimOperationKind::kSync || operation.kind == SimOperationKind::kSyncDir;
    if (!is_sync) continue;
    ++syncs;
    EXPECT_TRUE(shows(near_, far_, saved, operation.index))
        << operation.index << " " << operation.name;
  }
  EXPECT_EQ(syncs, 6U);  // two files, two directories, the manifest and its directory
}

// The history alone, which fences others, is durable, too.
TEST_F(FlushTest, ACopiedHistorySurvivesAPowerCut) {
  ASSERT_TRUE(copy_history(read_run(near_).value(), near_, store_));
  far_.power_off();
  for (const auto& image : far_.crash_images(kImagesMax, 0)) {
    const auto there = read_run(*image);
    ASSERT_TRUE(there) << image->label();
    EXPECT_EQ(there->claims.size(), 1U) << image->label();
    EXPECT_TRUE(there->claims.front().record) << image->label();
  }
}

TEST_F(FlushTest, AnAttemptIsNotFlushedAfterAClaimThatOnlyTheTierHas) {
  const Manifest first = run_.save(1);
  ASSERT_EQ(text_of(flush_to(near_, first, store_)), "");
  const Manifest second = run_.save(2);
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), first.point));  // a job on another machine
  const Status flushed = flush_to(near_, second, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kFenced) << flushed.error().message();
  EXPECT_FALSE(has_committed(far_, second));
}

// The claim comes while the files are on their way.
TEST_F(FlushTest, AClaimOnTheTierDuringAFlushFencesIt) {
  const Manifest saved = run_.save(1);
  RateLimit unlimited(0);
  const std::atomic<bool> never{false};
  const RunListing listing = read_run(near_).value();
  ASSERT_TRUE(copy_history(listing, near_, store_));
  bool has_claimed = false;
  const Status flushed =
      flush_attempt(near_, saved, store_,
                    {.rate = unlimited,
                     .stop = never,
                     .on_bytes =
                         [&](std::uint64_t, std::uint64_t) {
                           if (std::exchange(has_claimed, true)) return;
                           ASSERT_TRUE(claim_generation(far_, run_.run_id(), {}));
                         }},
                    &near_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kFenced) << flushed.error().message();
  EXPECT_FALSE(has_committed(far_, saved));
}

TEST_F(FlushTest, TwoClaimsOfOneNumberFenceTheFlush) {
  const Manifest first = run_.save(1);
  ASSERT_EQ(text_of(flush_to(near_, first, store_)), "");
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), first.point));
  run_.claim(first.point);
  const Manifest second = run_.save(2);
  const Status flushed = flush_to(near_, second, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kFenced) << flushed.error().message();
}

TEST_F(FlushTest, AFencedHistoryIsNotCopied) {
  ASSERT_EQ(text_of(flush_to(near_, run_.save(1), store_)), "");
  run_.claim({});
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), {}));
  ASSERT_TRUE(claim_generation(far_, run_.run_id(), {}));
  run_.claim({});
  const auto before = far_.list_all();
  const auto copied = copy_history(read_run(near_).value(), near_, store_);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code(), ErrorCode::kFenced) << copied.error().message();
  EXPECT_EQ(far_.list_all(), before);
}

TEST_F(FlushTest, AnErrorOfAnyReadOfTheTierIsToldByTheCopyOfItsHistory) {
  ASSERT_EQ(text_of(flush_to(near_, run_.save(1), store_)), "");
  run_.claim({});
  const RunListing listing = read_run(near_).value();
  const auto counted = far_.clone();
  VfsTierStore counted_store(*counted);
  ASSERT_TRUE(copy_history(listing, near_, counted_store));
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto far = far_.clone();
    VfsTierStore store(*far);
    far->fail_read_at(index, EIO);
    const auto copied = copy_history(listing, near_, store);
    if (!copied) {
      EXPECT_EQ(copied.error().os_errno(), EIO) << copied.error().message();
    }
    EXPECT_TRUE(copy_history(listing, near_, store)) << index;
  }
}

TEST_F(FlushTest, ADamagedClaimTakesItsNumberOnTheTierToo) {
  const Manifest saved = run_.save(1);
  ASSERT_TRUE(near_.flip_bit(generation_file_name(1), 99));
  EXPECT_EQ(text_of(flush_to(near_, saved, store_)), "");
  ASSERT_EQ(read_run(far_)->claims.size(), 1U);
  EXPECT_FALSE(read_run(far_)->claims.front().record);
}

TEST_F(FlushTest, ATierOfAnotherRunIsRefused) {
  NearRun other(far_);
  const Status flushed = flush_to(near_, run_.save(1), store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kMismatch) << flushed.error().message();
  EXPECT_NE(flushed.error().message().find(other.run_id()), std::string::npos);
}

TEST_F(FlushTest, RotOnTheTierIsReplaced) {
  const Manifest saved = run_.save(1, 2);
  ASSERT_EQ(text_of(flush_to(near_, saved, store_)), "");
  ASSERT_TRUE(far_.flip_bit(path_in_run(saved, kManifestFile), 99));
  ASSERT_TRUE(far_.flip_bit(path_in_run(saved, saved.files[1].name), 99));
  EXPECT_EQ(text_of(flush_to(near_, saved, store_)), "");
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
  EXPECT_TRUE(has_committed(far_, saved));
}

TEST_F(FlushTest, AManifestOfAnotherStepOnTheTierIsReplaced) {
  const Manifest first = run_.save(1);
  const Manifest second = run_.save(2);
  ASSERT_EQ(text_of(flush_to(near_, second, store_)), "");
  far_.plant(path_in_run(second, kManifestFile),
             near_.contents(path_in_run(first, kManifestFile)).value());
  EXPECT_EQ(text_of(flush_to(near_, second, store_)), "");
  EXPECT_TRUE(has_committed(far_, second));
}

// One read of a file fails.
class UnreadableOnceVfs final : public PassingVfs {
 public:
  UnreadableOnceVfs(Vfs& disk, std::string file, int read)
      : PassingVfs(disk), file_(std::move(file)), left_(read) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (name == file_ && --left_ == 0) return fail(ErrorCode::kIo, "it can't be read now");
    return PassingVfs::open_read(name, access);
  }

 private:
  const std::string file_;
  int left_;
};

TEST_F(FlushTest, AnotherOutcomeOfTheAttemptStaysThoughItCantBeRead) {
  constexpr int kReadsMax = 4;
  const Manifest saved = run_.save(1);
  const std::string path = path_in_run(saved, kManifestFile);
  Manifest aborted = saved;
  aborted.outcome = Outcome::kAborted;
  aborted.files.clear();
  const std::string outcome = encode_manifest(aborted);
  ASSERT_EQ(text_of(flush_to(near_, saved, store_)), "");
  far_.plant(path, outcome);
  for (int read = 0; read <= kReadsMax; ++read) {  // 0: none fails
    UnreadableOnceVfs disk(far_, path, read);
    VfsTierStore store(disk);
    EXPECT_FALSE(flush_to(near_, saved, store));
    EXPECT_EQ(far_.contents(path), outcome) << "read " << read;
  }
}

TEST_F(FlushTest, ADeletedAttemptIsGone) {
  const Manifest saved = run_.save(1);
  run_.save(2);
  ASSERT_TRUE(remove_attempt(near_, name_of(saved)));
  const Status flushed = flush_to(near_, saved, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kGone) << flushed.error().message();
}

// A far tier whose copy of an attempt another process deletes, before or after its manifest is put.
class DeletingVfs final : public PassingVfs {
 public:
  enum class When : std::uint8_t { kAtTheSync, kAtTheManifest };
  DeletingVfs(Vfs& disk, std::string file, When when)
      : PassingVfs(disk), file_(std::move(file)), when_(when) {}
  Status sync_dir(std::string_view name) override {
    const Status synced = PassingVfs::sync_dir(name);
    if (when_ == When::kAtTheSync && !name.empty()) std::ignore = disk_.remove_file(file_);
    return synced;
  }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    if (to.ends_with(kManifestFile)) has_put_manifest = true;
    if (when_ == When::kAtTheManifest && to.ends_with(kManifestFile)) {
      std::ignore = disk_.remove_file(file_);
    }
    return PassingVfs::rename_no_replace(from, to);
  }
  bool has_put_manifest = false;

 private:
  const std::string file_;
  const When when_;
};

TEST_F(FlushTest, ACopyThatIsDeletedMeanwhileIsNotCommittedWithoutItsFiles) {
  using When = DeletingVfs::When;
  const Manifest saved = run_.save(1, 2);
  for (const When when : {When::kAtTheSync, When::kAtTheManifest}) {
    SimDisk far;
    DeletingVfs deleting(far, path_in_run(saved, saved.files[0].name), when);
    VfsTierStore store(deleting);
    const Status flushed = flush_to(near_, saved, store);
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code(), ErrorCode::kGone) << flushed.error().message();
    EXPECT_FALSE(has_committed(far, saved));
    // A reader must not see it for a moment either, if that can be helped.
    EXPECT_EQ(deleting.has_put_manifest, when == When::kAtTheManifest);
  }
}

// The nearer copy goes, by a deletion on all tiers that has not come to this one yet.
TEST_F(FlushTest, AnAttemptThatIsDeletedMeanwhileIsNotCommitted) {
  class Hook final : public PassingVfs {
   public:
    Hook(Vfs& disk, std::function<void()> at_sync)
        : PassingVfs(disk), at_sync_(std::move(at_sync)) {}
    Status sync_dir(std::string_view name) override {
      if (!name.empty()) at_sync_();
      return PassingVfs::sync_dir(name);
    }

   private:
    std::function<void()> at_sync_;
  };
  const Manifest saved = run_.save(1);
  run_.save(2);
  Hook far(far_, [&] { std::ignore = remove_attempt(near_, name_of(saved)); });
  VfsTierStore store(far);
  const Status flushed = flush_to(near_, saved, store);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kGone) << flushed.error().message();
  EXPECT_FALSE(has_committed(far_, saved));
}

TEST_F(FlushTest, StopEndsACopyAndLeavesNothing) {
  const Manifest saved = run_.save(1);
  RateLimit unlimited(0);
  std::atomic<bool> stop{false};
  const RunListing listing = read_run(near_).value();
  ASSERT_TRUE(copy_history(listing, near_, store_));
  const Status flushed =
      flush_attempt(near_, saved, store_,
                    {.rate = unlimited,
                     .stop = stop,
                     .on_bytes = [&](std::uint64_t, std::uint64_t) { stop = true; }},
                    &near_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kCancelled);
  EXPECT_FALSE(far_.contents(path_in_run(saved, saved.files.front().name)));
}

TEST_F(FlushTest, AFullTierSaysSo) {
  const Manifest saved = run_.save(1);
  far_.set_bytes_free(3000);
  const Status flushed = flush_to(near_, saved, store_);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code(), ErrorCode::kNoSpace) << flushed.error().message();
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

}  // namespace
}  // namespace deepfreeze
