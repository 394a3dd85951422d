// Files as crashes and disks leave them: every length, all zeros, zeroed pages, pages of another
// file. Each time the newest step names its fault and the one before is still there.
#include <gtest/gtest.h>

#include "attacks/victim.h"
#include "base/log.h"
#include "crash/attempt_maker.h"
#include "manifest/history.h"
#include "restore/snapshot.h"

namespace deepfreeze {
namespace {

class TornFiles : public testing::Test {
 protected:
  TornFiles() {
    set_log_sink([](std::string_view) {});
  }
  ~TornFiles() override { set_log_sink({}); }

  [[nodiscard]] SimDisk& disk() { return *victim_.disk; }

  // The victim is refused as corrupt by the name of `file`; the good one is read in its place.
  void expect_fallback(std::string_view file) {
    const auto listing = read_run(disk());
    ASSERT_TRUE(listing.has_value()) << listing.error().message();
    const std::vector<Manifest> newest = newest_first(*listing);
    ASSERT_FALSE(newest.empty());
    EXPECT_EQ(newest.back(), good_manifest());
    const Error error =
        newest.size() == 1 ? listing->attempts.back().fault.value() : why_not(newest.front());
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.message();
    EXPECT_TRUE(error.message().contains(file)) << error.message();
  }

  // The error of a manifest that is listed and must not verify.
  Error why_not(const Manifest& manifest) {
    const auto snapshot = Snapshot::open(disk(), manifest);
    if (!snapshot) return snapshot.error();
    std::vector<std::byte> bytes(kTestDataBytes);
    const ReadTarget target{.key = "weights_0_0", .into = bytes};
    const Status read = (*snapshot)->read(std::span(&target, 1), {.thread_count = 1});
    return read ? Error(ErrorCode::kInternal, "it is read") : read.error();
  }

  Victim victim_ = make_victim();
};

TEST_F(TornFiles, AManifestOfEveryLength) {
  const std::string whole = victim_manifest();
  // Without its line feed it still says all that was said.
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    SCOPED_TRACE(size);
    disk().plant(victim_manifest_path(), whole.substr(0, size));
    expect_fallback(victim_manifest_path());
  }
}

TEST_F(TornFiles, AManifestWithEveryByteChanged) {
  const std::string whole = victim_manifest();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    SCOPED_TRACE(at);
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x20);
    disk().plant(victim_manifest_path(), changed);
    expect_fallback(victim_manifest_path());
  }
}

// A steps size that shares no factor with pages and sectors, and all that matter.
TEST_F(TornFiles, ADataFileOfEveryLengthOfItsHeader) {
  const std::string whole = disk().contents(victim_part_path()).value();
  for (std::size_t size = 0; size <= kPageBytes; ++size) {
    SCOPED_TRACE(size);
    disk().plant(victim_part_path(), whole.substr(0, size));
    expect_fallback(victim_.manifest.files.front().name);
  }
}

TEST_F(TornFiles, ADataFileWithEveryByteOfItsHeaderChanged) {
  const std::string whole = disk().contents(victim_part_path()).value();
  for (std::size_t at = 0; at < kPageBytes; ++at) {
    SCOPED_TRACE(at);
    ASSERT_TRUE(disk().flip_bit(victim_part_path(), at * 8 + at % 8));
    expect_fallback(victim_.manifest.files.front().name);
    ASSERT_TRUE(disk().flip_bit(victim_part_path(), at * 8 + at % 8));
  }
}

TEST_F(TornFiles, ADataFileOfTheRightLengthAndAllZero) {
  disk().plant(victim_part_path(), std::string(victim_.manifest.files.front().bytes, '\0'));
  expect_fallback("its length is zero, so it was never written");
}

TEST_F(TornFiles, AManifestOfTheRightLengthAndAllZero) {
  disk().plant(victim_manifest_path(), std::string(victim_manifest().size(), '\0'));
  expect_fallback(victim_manifest_path());
}

TEST_F(TornFiles, ADataSectionOfZeros) {
  const std::string zeros(kTestDataBytes, '\0');
  ASSERT_TRUE(disk().overwrite(victim_part_path(), kPageBytes, zeros));
  expect_fallback("block 0 (bytes 0..1500) of tensor weights_0_0");
}

// Sound bytes of the same place, size and kind, and of another step.
TEST_F(TornFiles, TheDataOfAnOlderStep) {
  const std::string good = join_name(attempt_dir_name(kGoodAttempt), sealed_file_name({}));
  const std::string older = disk().contents(good).value().substr(kPageBytes);
  ASSERT_TRUE(disk().overwrite(victim_part_path(), kPageBytes, older));
  expect_fallback("block 0 (bytes 0..1500) of tensor weights_0_0");
}

TEST_F(TornFiles, TheWholeFileOfAnOlderStep) {
  const std::string good = join_name(attempt_dir_name(kGoodAttempt), sealed_file_name({}));
  disk().plant(victim_part_path(), disk().contents(good).value());
  expect_fallback("header checksum differs from the manifest");
}

TEST_F(TornFiles, RecordsOfTheRunThatAreAllZeroCostNoCheckpoint) {
  for (const std::string& name : {std::string(kRunFile), victim_claim_path()}) {
    disk().plant(name, std::string(disk().contents(name).value().size(), '\0'));
  }
  const auto listing = read_run(disk());
  ASSERT_TRUE(listing.has_value()) << listing.error().message();
  EXPECT_EQ(listing->run.run_id, kPlantedRunId);
  EXPECT_TRUE(listing->run_rebuilt);
  EXPECT_EQ(newest_first(*listing).size(), 2U);
}

}  // namespace
}  // namespace deepfreeze
