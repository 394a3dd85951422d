#include "storage/vfs_tier_store.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/mapped_memory.h"
#include "support/passing_file.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kStorePage = 4096;

// A disk on which the last call of a written file fails, as it may over a network.
class NoClose final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    auto file = disk_.create(name, access);
    if (!file) return file;
    return std::make_unique<Unclosed>(*std::move(file));
  }

 private:
  class Unclosed final : public PassingFile {
   public:
    using PassingFile::PassingFile;
    Status close() override { return std::unexpected(Error(ErrorCode::kIo, "close: no")); }
  };
};

class VfsTierStoreTest : public testing::Test {
 protected:
  // A store of its own for a disk that is seen through another one.
  static VfsTierStore store_of(Vfs& disk) {
    return VfsTierStore(std::make_unique<PassingVfs>(disk));
  }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t size) const {
    return memory_.bytes().first(size);
  }

  SimDisk disk_;
  VfsTierStore store_ = store_of(disk_);
  const MappedMemory memory_ = MappedMemory::allocate(4 * kStorePage).value();
};

TEST_F(VfsTierStoreTest, PiecesBecomeAFile) {
  auto upload = store_.begin("folder/file", kStorePage + 3, IfTaken::kRefuse);
  ASSERT_TRUE(upload);
  ASSERT_TRUE((*upload)->append(bytes(kStorePage), {}));
  ASSERT_TRUE((*upload)->append(bytes(3), {}));
  EXPECT_FALSE(disk_.contents("folder/file"));
  ASSERT_TRUE((*upload)->finish());
  EXPECT_EQ(disk_.contents("folder/file"), std::string(kStorePage + 3, '\0'));
}

TEST_F(VfsTierStoreTest, NothingFollowsAnOddPiece) {
  const auto upload = store_.begin("file", 2 * kStorePage, IfTaken::kRefuse);
  ASSERT_TRUE((*upload)->append(bytes(3), {}));
  EXPECT_EQ((*upload)->append(bytes(kStorePage), {}).error().code(), ErrorCode::kInternal);
}

TEST_F(VfsTierStoreTest, MoreThanWasToldIsRefused) {
  const auto upload = store_.begin("file", kStorePage, IfTaken::kRefuse);
  EXPECT_EQ((*upload)->append(bytes(2 * kStorePage), {}).error().code(), ErrorCode::kInternal);
  EXPECT_TRUE((*upload)->append(bytes(kStorePage), {}));
  EXPECT_EQ((*upload)->append(bytes(1), {}).error().code(), ErrorCode::kInternal);
}

TEST_F(VfsTierStoreTest, LessThanWasToldGetsNoName) {
  const auto upload = store_.begin("file", 2 * kStorePage, IfTaken::kRefuse);
  ASSERT_TRUE((*upload)->append(bytes(kStorePage), {}));
  EXPECT_EQ((*upload)->finish().error().code(), ErrorCode::kInternal);
  EXPECT_FALSE(disk_.contents("file"));
}

TEST_F(VfsTierStoreTest, AFileThatCannotBeClosedGetsNoName) {
  NoClose disk(disk_);
  VfsTierStore store = store_of(disk);
  const Status put = put_text(store, "file", "text");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(disk_.list_all().empty());
}

TEST_F(VfsTierStoreTest, WhatDoesNotFitIsKnownBeforeItIsSent) {
  disk_.set_bytes_free(kStorePage);
  const auto upload = store_.begin("file", 2 * kStorePage, IfTaken::kRefuse);
  ASSERT_FALSE(upload);
  EXPECT_EQ(upload.error().code(), ErrorCode::kNoSpace);
  EXPECT_TRUE(disk_.list_all().empty());
}

}  // namespace
}  // namespace deepfreeze
