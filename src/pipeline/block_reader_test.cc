#include "pipeline/block_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "base/checked_math.h"
#include "codec/crc32c.h"
#include "packed/packed_fixture.h"
#include "storage/posix_vfs.h"
#include "support/passing_file.h"
#include "support/passing_vfs.h"
#include "support/scoped_dir.h"
#include "support/sim_disk.h"

namespace deepfreeze::block_reader_test {
namespace {

constexpr std::uint64_t kHeader = 3 * kPageBytes;
const std::string kName = "rank.safetensors";

// A file's data and checksums.
struct Stored {
  explicit Stored(std::uint64_t bytes) : data(bytes, '\0') {
    std::mt19937 random(static_cast<unsigned>(bytes));
    for (char& c : data) c = static_cast<char>(random());
    for (std::uint64_t at = 0; at < bytes; at += kBlockBytes) {
      crcs.push_back(crc32c(bytes_at({at, std::min(at + kBlockBytes, bytes)})));
    }
  }
  [[nodiscard]] std::span<const std::byte> bytes_at(Extent extent) const {
    return std::as_bytes(std::span(data)).subspan(extent.begin, extent.size());
  }
  [[nodiscard]] std::string file() const { return std::string(kHeader, 'h') + data; }

  std::string data;
  std::vector<std::uint32_t> crcs;
};

// The pieces asked for, and their destinations.
class Wanted {
 public:
  void add(Extent source) {
    sources_.push_back(source);
    memory_.emplace_back(source.size(), std::byte{0xcc});
  }
  [[nodiscard]] ReadPlan plan(const Stored& stored, std::size_t thread_count = 3) {
    ReadPlan made{.name = kName,
                  .header_bytes = kHeader,
                  .data_bytes = stored.data.size(),
                  .block_crcs = stored.crcs,
                  .pieces = {},
                  .verify = true,
                  .thread_count = thread_count,
                  .on_progress = {}};
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      made.pieces.push_back({sources_[i], memory_[i]});
    }
    return made;
  }
  [[nodiscard]] bool arrived(std::size_t index, const Stored& stored) const {
    const auto expected = stored.bytes_at(sources_[index]);
    return std::memcmp(memory_[index].data(), expected.data(), expected.size()) == 0;
  }
  [[nodiscard]] bool all_arrived(const Stored& stored) const {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (!arrived(i, stored)) return false;
    }
    return true;
  }
  [[nodiscard]] std::uint64_t bytes_of_touched_blocks(std::uint64_t data_bytes) const {
    std::set<std::uint64_t> blocks;
    for (const Extent& source : sources_) {
      for (std::uint64_t at = source.begin; at < source.end; at = round_up(at + 1, kBlockBytes)) {
        blocks.insert(at / kBlockBytes);
      }
    }
    return std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0},
                           [&](std::uint64_t sum, std::uint64_t block) {
                             const std::uint64_t begin = block * kBlockBytes;
                             return sum + std::min(kBlockBytes, data_bytes - begin);
                           });
  }

 private:
  std::vector<Extent> sources_;
  std::vector<std::vector<std::byte>> memory_;
};

ReadOutcome read(Vfs& vfs, const ReadPlan& plan) {
  auto outcome = read_blocks(vfs, plan);
  EXPECT_TRUE(outcome) << outcome.error().message();
  return outcome.value_or(ReadOutcome{});
}

std::vector<std::uint64_t> indices(const ReadOutcome& outcome) {
  std::vector<std::uint64_t> found;
  for (const BadBlock& block : outcome.bad_blocks) found.push_back(block.index);
  return found;
}

TEST(ReadBlocks, RandomPiecesEqualTheSource) {
  const Stored stored(3 * kSlabBytes + 77'777);
  SimDisk disk;
  disk.plant(kName, stored.file());
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    std::mt19937_64 random(seed);
    Wanted wanted;
    for (std::uint64_t i = random() % 30; i > 0; --i) {
      const std::uint64_t begin = random() % stored.data.size();
      const std::uint64_t limit = i % 7 == 0 ? kSlabBytes + 100'000 : 5'000;
      wanted.add({begin, begin + random() % std::min(limit, stored.data.size() - begin)});
    }
    const ReadOutcome outcome = read(disk, wanted.plan(stored, seed % 5));
    EXPECT_TRUE(outcome.bad_blocks.empty());
    EXPECT_TRUE(wanted.all_arrived(stored));
    EXPECT_EQ(outcome.bytes_read, wanted.bytes_of_touched_blocks(stored.data.size()));
  }
}

TEST(ReadBlocks, TenThousandSmallPiecesReadEachBlockOnce) {
  const Stored stored(10'000 * 97);
  SimDisk disk;
  disk.plant(kName, stored.file());
  Wanted wanted;
  for (std::uint64_t i = 0; i < 10'000; ++i) wanted.add({i * 97, i * 97 + 97});
  const ReadOutcome outcome = read(disk, wanted.plan(stored));
  EXPECT_TRUE(wanted.all_arrived(stored));
  EXPECT_EQ(outcome.bytes_read, stored.data.size());
}

TEST(ReadBlocks, ReadsARealFileToItsOddEnd) {
  const ScopedDir dir;
  const auto vfs = open_posix_vfs(dir.path());
  ASSERT_TRUE(vfs);
  const Stored stored(2 * kSlabBytes + 4'097);
  ASSERT_TRUE(write_new_file(**vfs, kName, stored.file()));
  Wanted wanted;
  wanted.add({0, stored.data.size()});
  EXPECT_TRUE(read(**vfs, wanted.plan(stored)).bad_blocks.empty());
  EXPECT_TRUE(wanted.all_arrived(stored));
}

TEST(ReadBlocks, NothingWantedReadsNothing) {
  const Stored stored(1'000);
  SimDisk disk;
  disk.plant(kName, stored.file());
  Wanted wanted;
  wanted.add({10, 10});
  const ReadOutcome outcome = read(disk, wanted.plan(stored));
  EXPECT_EQ(outcome.bytes_read, 0U);
  EXPECT_TRUE(outcome.bad_blocks.empty());
}

TEST(ReadBlocks, AFlippedBitIsFoundInItsBlockAndTheOthersAreDelivered) {
  const Stored stored(kSlabBytes + 3 * kBlockBytes + 500);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    const std::uint64_t bit = std::mt19937_64(seed)() % (stored.data.size() * 8);
    SimDisk disk;
    disk.plant(kName, stored.file());
    ASSERT_TRUE(disk.flip_bit(kName, kHeader * 8 + bit));
    Wanted wanted;
    for (std::uint64_t at = 0; at < stored.data.size(); at += kBlockBytes) {
      wanted.add({at, std::min(at + kBlockBytes, stored.data.size())});
    }
    const ReadOutcome outcome = read(disk, wanted.plan(stored));
    const std::uint64_t bad = bit / 8 / kBlockBytes;
    EXPECT_EQ(indices(outcome), std::vector{bad});
    for (std::size_t i = 0; i < stored.crcs.size(); ++i) {
      EXPECT_EQ(wanted.arrived(i, stored), i != bad) << i;
    }
  }
}

TEST(ReadBlocks, UnverifiedItDeliversWhatIsThere) {
  const Stored stored(1'000);
  SimDisk disk;
  disk.plant(kName, stored.file());
  ASSERT_TRUE(disk.flip_bit(kName, kHeader * 8 + 8 * 700));
  Wanted wanted;
  wanted.add({0, 700});
  wanted.add({700, 701});
  ReadPlan plan = wanted.plan(stored);
  plan.verify = false;
  plan.block_crcs = {};
  EXPECT_TRUE(read(disk, plan).bad_blocks.empty());
  EXPECT_TRUE(wanted.arrived(0, stored));
  EXPECT_EQ(plan.pieces[1].into[0], stored.bytes_at({700, 701})[0] ^ std::byte{1});
}

TEST(ReadBlocks, ATruncatedFileHasItsLastBlocksBad) {
  const Stored stored(5 * kBlockBytes + 100);
  for (const bool verify : {true, false}) {
    for (const std::uint64_t left : {5 * kBlockBytes + 99, 3 * kBlockBytes + 1, std::uint64_t{0}}) {
      SCOPED_TRACE(testing::Message() << left << " bytes left, verify " << verify);
      SimDisk disk;
      disk.plant(kName, stored.file().substr(0, kHeader + left));
      Wanted wanted;
      wanted.add({0, stored.data.size()});
      ReadPlan plan = wanted.plan(stored);
      plan.verify = verify;
      const ReadOutcome outcome = read(disk, plan);
      std::vector<std::uint64_t> expected(6 - left / kBlockBytes);
      std::iota(expected.begin(), expected.end(), left / kBlockBytes);
      EXPECT_EQ(indices(outcome), expected);
      for (const BadBlock& bad : outcome.bad_blocks) EXPECT_EQ(bad.cause, "file ends early");
      EXPECT_EQ(outcome.bytes_read, left);
    }
  }
}

TEST(ReadBlocks, BadBlocksAreSortedAndTheListIsBounded) {
  const Stored stored((kBadBlocksMax + 200) * kBlockBytes);
  std::vector<std::uint32_t> wrong = stored.crcs;
  for (std::uint32_t& crc : wrong) ++crc;
  SimDisk disk;
  disk.plant(kName, stored.file());
  Wanted wanted;
  wanted.add({0, stored.data.size()});
  ReadPlan plan = wanted.plan(stored);
  plan.block_crcs = wrong;
  const ReadOutcome outcome = read(disk, plan);
  std::vector<std::uint64_t> expected(kBadBlocksMax);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  EXPECT_EQ(indices(outcome), expected);
}

TEST(ReadBlocks, ProgressGrowsToTheBytesRead) {
  const Stored stored(3 * kSlabBytes);
  SimDisk disk;
  disk.plant(kName, stored.file());
  Wanted wanted;
  wanted.add({0, stored.data.size()});
  ReadPlan plan = wanted.plan(stored);
  std::vector<std::uint64_t> seen;
  plan.on_progress = [&seen](std::uint64_t bytes) { seen.push_back(bytes); };
  EXPECT_EQ(read(disk, plan).bytes_read, stored.data.size());
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{kSlabBytes, 2 * kSlabBytes, 3 * kSlabBytes}));
}

Error bad_sector() { return {ErrorCode::kIo, "read: Input/output error", EIO}; }

// A device on which one sector can't be read.
class BadSectorFile final : public PassingFile {
 public:
  // `error` is that of the first read of it, or else of all later ones.
  BadSectorFile(std::unique_ptr<File> file, std::uint64_t bad, Error error, bool is_first)
      : PassingFile(std::move(file)), bad_(bad), error_(std::move(error)), is_due_(is_first) {}
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    if (offset > bad_ || bad_ >= offset + into.size()) return file_->read_at(offset, into);
    const bool is_due = std::exchange(is_due_, !has_failed_ && !is_due_);
    has_failed_ = true;
    return std::unexpected(is_due ? error_ : bad_sector());
  }

 private:
  const std::uint64_t bad_;
  const Error error_;
  bool is_due_;
  bool has_failed_ = false;
};

class BadSectorVfs final : public PassingVfs {
 public:
  BadSectorVfs(SimDisk& disk, std::uint64_t bad, Error error = bad_sector(), bool is_first = false)
      : PassingVfs(disk), bad_(bad), error_(std::move(error)), is_first_(is_first) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    auto file = disk_.open_read(name, access);
    if (!file) return file;
    return std::make_unique<BadSectorFile>(std::move(*file), bad_, error_, is_first_);
  }

 private:
  const std::uint64_t bad_;
  const Error error_;
  const bool is_first_;
};

TEST(ReadBlocks, AnUnreadableSectorCostsItsBlockOnly) {
  const Stored stored(6 * kBlockBytes + 10);
  SimDisk disk;
  disk.plant(kName, stored.file());
  BadSectorVfs vfs(disk, kHeader + 4 * kBlockBytes + 512);
  Wanted wanted;
  wanted.add({0, 4 * kBlockBytes});
  wanted.add({5 * kBlockBytes, stored.data.size()});
  wanted.add({4 * kBlockBytes, 5 * kBlockBytes});
  const ReadOutcome outcome = read(vfs, wanted.plan(stored));
  ASSERT_EQ(indices(outcome), std::vector<std::uint64_t>{4});
  EXPECT_EQ(outcome.bad_blocks[0].cause, "read: Input/output error");
  EXPECT_TRUE(wanted.arrived(0, stored));
  EXPECT_TRUE(wanted.arrived(1, stored));
  EXPECT_EQ(outcome.bytes_read, stored.data.size() - kBlockBytes);
}

TEST(ReadBlocks, AnErrorThatSaysNothingOfABlockEndsTheRead) {
  const Stored stored(6 * kBlockBytes + 10);
  SimDisk disk;
  disk.plant(kName, stored.file());
  for (const Error& error :
       {Error(ErrorCode::kGone, "deleted"), Error(ErrorCode::kCancelled, "given up"),
        Error(ErrorCode::kTimeout, "no answer"), Error(ErrorCode::kInvalidArgument, "wrong keys"),
        Error(ErrorCode::kIo, "denied", EACCES)}) {
    for (const bool is_first : {true, false}) {
      BadSectorVfs vfs(disk, kHeader + 4 * kBlockBytes + 512, error, is_first);
      Wanted wanted;
      wanted.add({0, stored.data.size()});
      const auto outcome = read_blocks(vfs, wanted.plan(stored));
      ASSERT_FALSE(outcome) << error.message() << is_first;
      EXPECT_EQ(outcome.error().message(), error.message());
    }
  }
}

TEST(ReadBlocks, AMissingFileIsAnError) {
  const Stored stored(100);
  SimDisk disk;
  Wanted wanted;
  wanted.add({0, 1});
  const auto outcome = read_blocks(disk, wanted.plan(stored));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::kNotFound);
}

TEST(ReadBlocks, APlanThatContradictsItselfIsRefused) {
  const Stored stored(1'000);
  SimDisk disk;
  disk.plant(kName, stored.file());
  Wanted wanted;
  wanted.add({900, 1'000});
  std::vector<ReadPlan> wrong(5, wanted.plan(stored));
  wrong[0].pieces[0].source = {901, 1'001};
  wrong[1].pieces[0].into = wrong[1].pieces[0].into.first(99);
  wrong[2].block_crcs = {};
  wrong[3].header_bytes = 100;
  wrong[4].data_bytes = ~std::uint64_t{0};
  wrong[4].verify = false;
  for (const ReadPlan& plan : wrong) {
    const auto outcome = read_blocks(disk, plan);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), ErrorCode::kInvalidArgument) << outcome.error().message();
  }
}

TEST(ReadBlocks, SizesThatWrapAroundAreRefused) {
  const Stored stored(1'000);
  SimDisk disk;
  disk.plant(kName, stored.file());
  Wanted wanted;
  wanted.add({900, 1'000});
  std::vector<ReadPlan> wrong(2, wanted.plan(stored));
  wrong[0].header_bytes = ~std::uint64_t{0} - kPageBytes + 1;
  wrong[0].data_bytes = kPageBytes;
  wrong[1].header_bytes = 0;
  wrong[1].data_bytes = ~std::uint64_t{0} - 1;
  for (ReadPlan& plan : wrong) {
    plan.verify = false;
    const auto outcome = read_blocks(disk, plan);
    ASSERT_FALSE(outcome);
    EXPECT_TRUE(outcome.error().message().contains("sizes out of range"));
  }
}

TEST(ReadBlocks, PlansForOnePackedFileShareItsIndex) {
  const DataFile file = mixed_file(2);
  SimDisk disk;
  disk.plant(kName, as_text(packed_bytes_of(file)));
  std::vector<std::byte> into(kBlockBytes);
  const ReadPlan plan{.name = kName,
                      .header_bytes = file.header_bytes.size(),
                      .data_bytes = file.data.size(),
                      .block_crcs = file.header.block_crcs,
                      .pieces = {{{kBlockBytes, 2 * kBlockBytes}, into}},
                      .thread_count = 1};
  const auto opened = open_for_blocks(disk, plan).value();
  ASSERT_TRUE(read_blocks(*opened, plan));
  EXPECT_TRUE(std::ranges::equal(into, std::span(file.data).subspan(kBlockBytes, kBlockBytes)));
  const std::size_t before = disk.read_count();
  const auto again = read_blocks(*opened, plan);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->bad_blocks.empty());
  EXPECT_EQ(disk.read_count() - before, 1U);  // the stored block alone
}

}  // namespace
}  // namespace deepfreeze::block_reader_test
