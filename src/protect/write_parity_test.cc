// The parity file is written whole or not at all, wherever it is interrupted.
#include "protect/write_parity.h"

#include <new>

#include "base/fail_point.h"
#include "protect/checked_file.h"
#include "protect/protect_fixture.h"
#include "support/code_of.h"
#include "support/passing_file.h"
#include "support/passing_vfs.h"

namespace deepfreeze {
namespace {

// Small, so that every operation can fail in turn.
Cluster small_cluster(std::uint64_t seed) { return {3, 1, 100'000, seed}; }

// Nothing was added but, perhaps, the parity file, whole.
void expect_whole_or_nothing(Cluster& cluster, SimDisk& disk) {
  std::string whole;
  for (const std::string& name : disk.list_all()) {
    const bool is_temporary = name.ends_with(".tmp");
    EXPECT_TRUE(is_temporary || name.ends_with("/") || cluster.files().contains(name) ||
                name == cluster.parity_path(1))
        << name;
  }
  if (!disk.contents(cluster.parity_path(1))) return;
  const auto file = CheckedFile::open(disk, cluster.parity_path(1), {});
  ASSERT_TRUE(file) << file.error().message();
  const std::uint64_t bytes = file->header().data_bytes;
  const auto memory = MappedMemory::allocate(bytes).value();
  const Status read = file->read_data(0, memory.bytes());
  EXPECT_TRUE(read) << read.error().message();
}

TEST(WriteParity, ASecondTimeDoesNothing) {
  Cluster cluster = small_cluster(1);
  ASSERT_TRUE(cluster.protect(1, 1));
  const auto first = cluster.disk(1).contents(cluster.parity_path(1));
  const std::size_t before = cluster.disk(1).operation_count();
  ASSERT_TRUE(cluster.protect(1, 1));
  EXPECT_EQ(cluster.disk(1).contents(cluster.parity_path(1)), first);
  // It makes the name durable: the process that placed the file may have died before that.
  EXPECT_EQ(cluster.disk(1).operation_count(), before + 1);
}

TEST(WriteParity, IsDurableOnReturn) {
  Cluster cluster = small_cluster(2);
  ASSERT_TRUE(cluster.protect(1, 1));
  EXPECT_EQ(cluster.disk(1).pending_count(), 0U);
}

TEST(WriteParity, PowerCutAtEachOperation) {
  Cluster cluster = small_cluster(3);
  const auto before = cluster.copies();
  ASSERT_TRUE(cluster.protect(1, 1));
  const std::size_t operations = cluster.disk(1).operation_count();
  ASSERT_GT(operations, 5U);
  for (std::size_t index = 0; index < operations; ++index) {
    cluster.put_back(before);
    cluster.disk(1).crash_at(index);
    EXPECT_FALSE(cluster.protect(1, 1));
    cluster.disk(1).for_each_crash_image(
        64, index, [&](SimDisk& disk) { expect_whole_or_nothing(cluster, disk); });
  }
}

TEST(WriteParity, EachFailureIsReportedAndLeavesNoTemporaryFile) {
  Cluster cluster = small_cluster(4);
  const auto before = cluster.copies();
  ASSERT_TRUE(cluster.protect(1, 1));
  const std::size_t operations = cluster.disk(1).operation_count();
  for (std::size_t index = 0; index < operations; ++index) {
    cluster.put_back(before);
    cluster.disk(1).fail_at(index, EIO);
    EXPECT_FALSE(cluster.protect(1, 1)) << index;
    expect_whole_or_nothing(cluster, cluster.disk(1));
    for (const std::string& name : cluster.disk(1).list_all()) {
      EXPECT_FALSE(name.ends_with(".tmp")) << name;
    }
    EXPECT_TRUE(cluster.protect(1, 1));  // the next time
    cluster.disk(1).for_each_crash_image(16, index, [&](const SimDisk& disk) {
      EXPECT_TRUE(disk.contents(cluster.parity_path(1))) << index;
    });
  }
}

// A read of bytes that no piece needs may fail.
TEST(WriteParity, AReadThatFailsIsReportedOrChangesNothing) {
  Cluster cluster = small_cluster(5);
  const auto before = cluster.copies();
  ASSERT_TRUE(cluster.protect(1, 1));
  const std::string good = cluster.disk(1).contents(cluster.parity_path(1)).value();
  std::size_t failed = 0;
  for (std::size_t node = 0; node < 3; ++node) {
    cluster.put_back(before);
    ASSERT_TRUE(cluster.protect(1, 1));
    const std::size_t reads = cluster.disk(node).read_count();
    for (std::size_t index = 0; index < reads; ++index) {
      cluster.put_back(before);
      cluster.disk(node).fail_read_at(index, EIO);
      const auto code = code_of(cluster.protect(1, 1));
      const auto written = cluster.disk(1).contents(cluster.parity_path(1));
      failed += code ? 1 : 0;
      EXPECT_EQ(code.value_or(ErrorCode::kIo), ErrorCode::kIo) << index << " on " << node;
      EXPECT_EQ(written.value_or(good), good);
      EXPECT_NE(code.has_value(), written.has_value());
    }
  }
  EXPECT_GT(failed, 10U);
}

TEST(WriteParity, ADamagedSourceIsNoParity) {
  Cluster cluster = small_cluster(6);
  const std::string path = cluster.directory() + "/" + cluster.members()[2].files[0].name;
  const std::uint64_t bits = 8 * cluster.files().at(path).size();
  const auto before = cluster.copies();
  for (int round = 0; round < 50; ++round) {
    cluster.put_back(before);
    ASSERT_TRUE(cluster.disk(2).flip_bit(path, cluster.random()() % bits));
    // Its chunk need not be among those of this node's parity; its header always is.
    const Status done = cluster.protect(0, 2);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(WriteParity, AFullDiskLeavesNothing) {
  Cluster cluster = small_cluster(7);
  cluster.disk(1).set_bytes_free(10'000);
  EXPECT_EQ(code_of(cluster.protect(1, 1)), ErrorCode::kNoSpace);
  for (const std::string& name : cluster.disk(1).list_all()) {
    EXPECT_TRUE(name.ends_with("/") || cluster.files().contains(name)) << name;
  }
}

TEST(WriteParity, EndsWhenItIsToldTo) {
  Cluster cluster = small_cluster(8);
  cluster.stop() = true;
  EXPECT_EQ(code_of(cluster.protect(1, 1)), ErrorCode::kCancelled);
  EXPECT_FALSE(cluster.disk(1).contents(cluster.parity_path(1)));
}

// Another process gives the name to a file of its own just before this one does.
class Overtaken final : public PassingVfs {
 public:
  Overtaken(SimDisk& disk, std::string bytes)
      : PassingVfs(disk), disk_(disk), bytes_(std::move(bytes)) {}
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    disk_.plant(to, bytes_);
    return disk_.rename_no_replace(from, to);
  }

 private:
  SimDisk& disk_;
  const std::string bytes_;
};

TEST(WriteParity, AnotherProcessMayHaveBeenFaster) {
  Cluster cluster = small_cluster(9);
  ASSERT_TRUE(cluster.protect(1, 1));
  const auto first = cluster.disk(1).contents(cluster.parity_path(1)).value();
  Cluster again = small_cluster(9);
  Overtaken disk(again.disk(1), first);
  again.members()[1].vfs = &disk;
  ASSERT_TRUE(again.protect(1, 1));
  EXPECT_EQ(again.disk(1).contents(again.parity_path(1)), first);
  for (const std::string& name : again.disk(1).list_all()) {
    EXPECT_FALSE(name.ends_with(".tmp")) << name;
  }
}

// Memory is refused to the reading threads, or to the writing one.
class Refusing final : public PassingVfs {
 public:
  Refusing(SimDisk& disk, bool reads) : PassingVfs(disk), reads_(reads) {}
  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    auto file = PassingVfs::create(name, access);
    if (!file || reads_) return file;
    return std::make_unique<RefusingFile>(*std::move(file));
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    auto file = PassingVfs::open_read(name, access);
    if (!file || !reads_) return file;
    return std::make_unique<RefusingFile>(*std::move(file));
  }

 private:
  class RefusingFile final : public PassingFile {
   public:
    using PassingFile::PassingFile;
    Status write_at(std::uint64_t /*offset*/, std::span<const std::byte> /*bytes*/) override {
      throw std::bad_alloc();
    }
    Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
      if (into.size() > kPageBytes) throw std::bad_alloc();  // not of a header
      return PassingFile::read_at(offset, into);
    }
  };
  const bool reads_;
};

TEST(WriteParity, MemoryThatIsRefusedToAReaderIsAnError) {
  Cluster cluster = small_cluster(12);
  Refusing disk(cluster.disk(2), true);
  cluster.members()[2].vfs = &disk;
  EXPECT_EQ(code_of(cluster.protect(1, 1)), ErrorCode::kNoSpace);
}

// More than the readers have buffers for: they must not wait for ever.
TEST(WriteParity, AnExceptionEndsTheReaders) {
  Cluster cluster(2, 1, 8 * kStripBytes, 13);
  Refusing disk(cluster.disk(1), false);
  cluster.members()[1].vfs = &disk;
  EXPECT_THROW((void)cluster.protect(1, 1), std::bad_alloc);
}

// Each durable step that an error follows: the name may be there already, and then it is whole.
TEST(WriteParity, AnErrorAfterEachStepIsMadeGoodTheNextTime) {
  Cluster cluster = small_cluster(11);
  const auto before = cluster.copies();
  for (const std::string point :
       {"parity.encoding", "parity.written", "parity.renamed", "parity.synced"}) {
    cluster.put_back(before);
    ASSERT_TRUE(fail_points::arm(point + "=error:EIO"));
    EXPECT_EQ(code_of(cluster.protect(1, 1)), ErrorCode::kIo) << point;
    fail_points::disarm();
    expect_whole_or_nothing(cluster, cluster.disk(1));
    ASSERT_TRUE(cluster.protect(1, 1));
    cluster.disk(1).for_each_crash_image(
        16, 1, [&](SimDisk& disk) { EXPECT_TRUE(disk.contents(cluster.parity_path(1))) << point; });
  }
}

TEST(WriteParity, AlwaysGivesTheSameBytes) {
  Cluster cluster = small_cluster(10);
  ASSERT_TRUE(cluster.protect(1, 1));
  Cluster again = small_cluster(10);
  ASSERT_TRUE(fail_points::arm("parity.written=error:EIO"));
  EXPECT_FALSE(again.protect(1, 1));
  fail_points::disarm();
  ASSERT_TRUE(again.protect(1, 1));
  EXPECT_EQ(again.disk(1).contents(again.parity_path(1)),
            cluster.disk(1).contents(cluster.parity_path(1)));
}

}  // namespace
}  // namespace deepfreeze
