// Checkpoints whose files lie packed on a tier.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "packed/packed_fixture.h"
#include "restore/run_fixture.h"
#include "restore/shard_file.h"
#include "restore/snapshot.h"
#include "storage/posix_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One file with two tensors of a few blocks each; its copy on a farther tier is packed.
class PackedSnapshot : public testing::Test {
 protected:
  PackedSnapshot() {
    for (const char* key : {"first", "second"}) {
      std::vector<float> values(50'000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i) * 0.37F) * (key[0] == 'f' ? 0.01F : 0.02F);
      }
      save_.ranks.resize(1);
      save_.ranks[0].push_back(f32_tensor(key, values));
    }
    manifest_ = run_.save(save_);
    near_file_ = run_.file_path(manifest_, manifest_.files.front().name);
    std::filesystem::copy(run_.path(), far_, std::filesystem::copy_options::recursive);
    far_file_ = far_ / std::filesystem::relative(near_file_, run_.path());
    const std::string plain = bytes_of_file(near_file_);
    const DataFile file = data_file_of(std::as_bytes(std::span(plain)));
    std::ofstream(far_file_, std::ios::binary | std::ios::trunc) << as_text(packed_bytes_of(file));
    header_bytes_ = file.header_bytes.size();
    far_vfs_ = must(open_posix_vfs(far_));
  }
  ~PackedSnapshot() override { std::filesystem::remove_all(far_); }

  [[nodiscard]] Result<std::vector<std::byte>> read(const Snapshot& snapshot,
                                                    const std::string& key) const {
    std::vector<std::byte> bytes(200'000);
    const std::vector<ReadTarget> targets{{key, bytes}};
    const Status status = snapshot.read(targets, {.on_progress = {}});
    if (!status) return std::unexpected(status.error());
    return bytes;
  }
  void flip_in_block(std::uint64_t block) const {
    // Blocks of one tensor differ little in size: this is within the block or its neighbours.
    flip_bit(far_file_, 8 * (kPackedLeadBytes + header_bytes_ + block * 50'000 + 25'000));
  }

  RunFixture run_;
  FixtureSave save_;
  Manifest manifest_;
  std::filesystem::path far_{run_.text() + "-far"};
  std::filesystem::path near_file_;
  std::filesystem::path far_file_;
  std::uint64_t header_bytes_ = 0;
  std::unique_ptr<Vfs> far_vfs_;
};

TEST_F(PackedSnapshot, IsReadAndVerifiedFromTheTierAlone) {
  ASSERT_LT(std::filesystem::file_size(far_file_), std::filesystem::file_size(near_file_));
  const auto snapshot = must(Snapshot::open(*far_vfs_, manifest_));
  EXPECT_EQ(read(*snapshot, "first"), save_.ranks[0][0].data);
  EXPECT_EQ(read(*snapshot, "second"), save_.ranks[0][1].data);
  EXPECT_TRUE(must(verify_attempt(*far_vfs_, manifest_, {.on_progress = {}})).empty());
  const HeaderCheck check = must(verify_headers(*far_vfs_, manifest_));
  EXPECT_TRUE(check.faults.empty());
}

TEST_F(PackedSnapshot, ABadBlockIsNamedAndTheOthersAreRead) {
  flip_in_block(0);
  const auto snapshot = must(Snapshot::open(*far_vfs_, manifest_));
  const auto first = read(*snapshot, "first");
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(first.error().message().find("packed block 0"), std::string::npos)
      << first.error().message();
  EXPECT_EQ(read(*snapshot, "second"), save_.ranks[0][1].data);
  const auto faults = must(verify_attempt(*far_vfs_, manifest_, {.on_progress = {}}));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].blocks, std::vector<std::uint64_t>{0});
  EXPECT_EQ(faults[0].tensors, std::vector<std::string>{"first"});
}

TEST_F(PackedSnapshot, ABadBlockIsTakenFromAnotherTier) {
  flip_in_block(0);
  const auto snapshot = must(Snapshot::open({far_vfs_.get(), &run_.vfs()}, manifest_));
  EXPECT_EQ(read(*snapshot, "first"), save_.ranks[0][0].data);
  ASSERT_EQ(snapshot->mended().size(), 1U);
  EXPECT_EQ(snapshot->mended()[0].tier, 0U);
}

TEST_F(PackedSnapshot, ABadIndexIsAFaultOfTheFile) {
  flip_bit(far_file_, 8 * (std::filesystem::file_size(far_file_) - 100));
  const auto snapshot = must(Snapshot::open(*far_vfs_, manifest_));  // the header is good
  const auto first = read(*snapshot, "first");
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::kCorrupt);
  EXPECT_FALSE(must(verify_attempt(*far_vfs_, manifest_, {.on_progress = {}})).empty());
  EXPECT_FALSE(must(verify_headers(*far_vfs_, manifest_)).faults.empty());
  const auto both = must(Snapshot::open({far_vfs_.get(), &run_.vfs()}, manifest_));
  EXPECT_EQ(read(*both, "second"), save_.ranks[0][1].data);
}

// The size that a reader sees is that of the plain file, even if the packed one is cut off.
TEST_F(PackedSnapshot, ACutFileIsAFaultAlsoIfNoDataIsRead) {
  const std::uint64_t bytes = std::filesystem::file_size(far_file_);
  for (const std::uint64_t left : {bytes - 1, bytes * 2 / 3, kPackedLeadBytes + header_bytes_}) {
    std::filesystem::resize_file(far_file_, left);
    EXPECT_FALSE(must(verify_headers(*far_vfs_, manifest_)).faults.empty()) << left;
  }
}

// A device that fails there would be asked again for each block.
TEST_F(PackedSnapshot, AnIndexThatCantBeReadIsAskedForOnce) {
  SimDisk disk;
  const std::string path = attempt_path(manifest_, manifest_.files.front().name);
  disk.plant(path, bytes_of_file(far_file_));
  disk.plant(attempt_path(manifest_, kManifestFile), encode_manifest(manifest_));
  const auto snapshot = must(Snapshot::open(disk, manifest_));
  for (std::size_t read = disk.read_count() + 4; read < disk.read_count() + 200; ++read) {
    disk.fail_read_at(read, EIO);
  }
  const std::size_t before = disk.read_count();
  const auto first = read(*snapshot, "first");
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::kIo);
  EXPECT_LE(disk.read_count() - before, 7U) << "for each block it would be four more";
}

TEST_F(PackedSnapshot, ABadBeginningIsAFaultOfTheFile) {
  for (const std::uint64_t byte : {std::uint64_t{3}, std::uint64_t{9}, std::uint64_t{2'000}}) {
    flip_bit(far_file_, 8 * byte);
    const auto snapshot = Snapshot::open(*far_vfs_, manifest_);
    ASSERT_FALSE(snapshot) << byte;
    EXPECT_EQ(snapshot.error().code(), ErrorCode::kCorrupt) << byte;
    flip_bit(far_file_, 8 * byte);
  }
  EXPECT_TRUE(Snapshot::open(*far_vfs_, manifest_));
}

// As a reader finds it that is older than packed files, or that nobody told of them.
TEST_F(PackedSnapshot, ItsSizeIsNotThatOfTheManifest) {
  const auto raw = must(
      far_vfs_->open_read(std::filesystem::relative(far_file_, far_).string(), Access::kBuffered));
  EXPECT_NE(must(raw->size()), manifest_.files.front().bytes);
}

}  // namespace
}  // namespace deepfreeze
