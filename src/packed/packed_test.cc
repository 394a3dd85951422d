// Packed files, written and read as plain ones.
#include <gtest/gtest.h>

#include "base/try.h"
#include "format/file_reference.h"
#include "packed/open_part.h"
#include "packed/packed_fixture.h"
#include "packed/packed_stream.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr const char* kName = "rank-00001-of-00004-0-of-1.safetensors";

class PackedFiles : public testing::Test {
 protected:
  SimDisk disk;
  DataFile file = mixed_file(3);
  std::vector<std::byte> packed = packed_bytes_of(file);

  void put(std::span<const std::byte> bytes) {
    std::ignore = disk.remove_file(kName);
    EXPECT_TRUE(write_new_file(disk, kName, as_text(bytes)));
  }
  [[nodiscard]] std::unique_ptr<File> opened() {
    auto part = open_part(disk, kName, Access::kBuffered);
    EXPECT_TRUE(part) << part.error().message();
    return *std::move(part);
  }
  // All of it, or the error.
  [[nodiscard]] Result<std::vector<std::byte>> read_all() {
    DF_TRY(const auto part, open_part(disk, kName, Access::kBuffered));
    DF_TRY(const std::uint64_t bytes, part->size());
    std::vector<std::byte> all(bytes);
    DF_TRY(const std::size_t count, part->read_at(0, all));
    all.resize(count);
    return all;
  }
};

TEST_F(PackedFiles, AreSmallerAndReadAsThePlainOnes) {
  EXPECT_LT(packed.size(), file.plain().size() * 3 / 4);
  EXPECT_LE(packed.size(), packed_bytes_max(file.lead()));
  put(packed);
  EXPECT_EQ(read_all(), file.plain());
  put(file.plain());
  EXPECT_EQ(read_all(), file.plain());
}

TEST_F(PackedFiles, AnyRangeIsRead) {
  put(packed);
  const std::vector<std::byte> plain = file.plain();
  const auto part = opened();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    const std::size_t offset = random() % (plain.size() + 100);
    std::vector<std::byte> into(random() % (3 * kBlockBytes));
    const std::size_t there = offset < plain.size() ? plain.size() - offset : 0;
    const std::size_t expected = std::min(into.size(), there);
    ASSERT_EQ(part->read_at(offset, into), expected) << offset;
    into.resize(expected);
    ASSERT_TRUE(std::ranges::equal(
        into, std::span(plain).subspan(std::min(offset, plain.size()), expected)))
        << offset;
  }
}

// More than a slab of blocks in one read, and in each.
TEST_F(PackedFiles, LongReadsAreMadeOfSlabs) {
  file = mixed_file(70);
  put(packed_bytes_of(file));
  EXPECT_EQ(read_all(), file.plain());
}

TEST_F(PackedFiles, AFileWithoutDataIsRead) {
  file = {.header = {.identity = small_header().identity}, .header_bytes = {}, .data = {}};
  file.header_bytes = encode_header(file.header).value().bytes;
  put(packed_bytes_of(file));
  EXPECT_EQ(read_all(), file.plain());
}

TEST_F(PackedFiles, AReadOfOneBlockTakesItsStoredBytesOnly) {
  put(packed);
  const auto part = opened();
  const std::size_t before = disk.read_count();
  std::vector<std::byte> block(kBlockBytes);
  ASSERT_EQ(part->read_at(file.header_bytes.size(), block), block.size());
  EXPECT_LE(disk.read_count() - before, 2U);  // the index, and the block
  const std::size_t then = disk.read_count();
  ASSERT_EQ(part->read_at(file.header_bytes.size() + kBlockBytes, block), block.size());
  EXPECT_EQ(disk.read_count() - then, 1U);
}

TEST_F(PackedFiles, AFileOfTheExpectedSizeIsNotLookedAt) {
  put(file.plain());
  const std::size_t before = disk.read_count();
  ASSERT_TRUE(open_part(disk, kName, Access::kBuffered, file.plain().size()));
  const std::size_t with_size = disk.read_count() - before;
  ASSERT_TRUE(open_part(disk, kName, Access::kBuffered));
  EXPECT_EQ(disk.read_count() - before - with_size, with_size + 1);
}

// Wherever it is: the plain bytes come back, or none. Only bytes of the header, which has a
// checksum of its own, come back changed.
TEST_F(PackedFiles, AFlippedBitNeverGivesOtherData) {
  file = mixed_file(1);
  packed = packed_bytes_of(file);
  const std::size_t header_end = kPackedLeadBytes + file.header_bytes.size();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto try_bit = [&](std::uint64_t bit) {
    std::vector<std::byte> flipped = packed;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    put(flipped);
    const auto read = read_all();
    const bool is_in_header = bit / 8 >= kPackedLeadBytes && bit / 8 < header_end;
    const bool is_in_mark = bit / 8 < 8;  // then it is taken for a plain file of another size
    if (is_in_header) {
      ASSERT_TRUE(read) << bit;
      ASSERT_NE(read, file.plain()) << bit;
    } else if (is_in_mark) {
      ASSERT_EQ(read, flipped) << bit;
    } else {
      ASSERT_FALSE(read) << bit;
      ASSERT_EQ(read.error().code(), ErrorCode::kCorrupt) << bit;
    }
  };
  for (int i = 0; i < 300; ++i) try_bit(random() % (packed.size() * 8));
  const std::size_t index_bytes = packed_index_bytes_max(file.lead());
  for (int i = 0; i < 100; ++i) {
    try_bit((packed.size() - 1 - random() % index_bytes) * 8 + random() % 8);
    try_bit(random() % (std::size_t{64} * 8));
  }
}

TEST_F(PackedFiles, ACutFileIsRefused) {
  for (const std::size_t bytes : {packed.size() - 1, packed.size() / 2, std::size_t{9'000},
                                  kPackedLeadBytes + file.header_bytes.size()}) {
    put(std::span(packed).first(bytes));
    const auto read = read_all();
    ASSERT_FALSE(read) << bytes;
    EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt) << bytes;
  }
  put(std::span(packed).first(100));  // not even its first page
  EXPECT_EQ(read_all()->size(), 100U);
}

TEST_F(PackedFiles, AnUnreadableIndexMayBeReadLater) {
  put(packed);
  const auto part = opened();
  disk.fail_read_at(disk.read_count(), EIO);
  std::vector<std::byte> block(kBlockBytes);
  const auto failed = part->read_at(file.header_bytes.size(), block);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  EXPECT_EQ(part->read_at(file.header_bytes.size(), block), block.size());
}

TEST_F(PackedFiles, BlocksThatDoNotShrinkStayPlainAndAreSeldomTried) {
  BlockPacker packer = BlockPacker::make(mixed_file(40).header).value();
  file = mixed_file(40);
  std::uint64_t plain_blocks = 0;
  for (std::uint64_t block = 0; block < 120; ++block) {
    const auto plain = std::span(file.data).subspan(block * kBlockBytes, kBlockBytes);
    const auto stored = packer.store(block, plain, 7);
    if (stored.bytes.data() != plain.data()) continue;
    ++plain_blocks;
    EXPECT_EQ(stored.crc, 7U);
    EXPECT_GE(block, 40U);
    EXPECT_LT(block, 80U);
  }
  EXPECT_EQ(plain_blocks, 40U);
}

// Between the check of a block and the checksum that a store compares.
TEST(PackedStreamTest, AChunkThatIsNotWhatItsBlocksWereIsRefused) {
  const std::vector<std::byte> block(kBlockBytes, std::byte{7});
  for (const std::uint32_t bit : {0U, 1U}) {
    PackedStream stream({.header_bytes = kPageBytes, .data_bytes = 2 * kBlockBytes});
    std::vector<std::byte> chunk(kPackedChunkBytes);
    stream.begin_chunk(chunk);
    stream.add_block(std::span(block).first(5'000), crc32c(std::span(block).first(5'000)));
    stream.add_block(block, crc32c(block) ^ bit);
    const auto piece = stream.end_chunk();
    EXPECT_EQ(piece.has_value(), bit == 0);
    EXPECT_EQ(code_of(piece) == ErrorCode::kIo, bit == 1);
  }
}

class References : public PackedFiles {
 protected:
  const std::string shared = shared_file_name(
      shared_stem({.run_id = "00000000000000aa", .point = {1, 7, 1, 0xb1}}, kName), 5);
  const std::string shared_path = std::string(kSharedDirectory) + "/" + shared;

  References() { EXPECT_TRUE(disk.make_dir(kSharedDirectory)); }
  void put_shared(std::span<const std::byte> bytes) {
    std::ignore = disk.remove_file(shared_path);
    EXPECT_TRUE(write_new_file(disk, shared_path, as_text(bytes)));
  }
  const std::string page = encode_reference(shared);
  void refer() { put(std::as_bytes(std::span(page))); }
  [[nodiscard]] ErrorCode error_of_reading() {
    const auto all = read_all();
    return all ? ErrorCode::kInternal : all.error().code();
  }
};

TEST_F(References, AreReadAsTheFilesThatTheyName) {
  refer();
  put_shared(file.plain());
  EXPECT_EQ(read_all(), file.plain());
  EXPECT_EQ(referred_file(disk, kName).value(), shared_path);
  put_shared(packed);
  EXPECT_EQ(read_all(), file.plain());
  EXPECT_EQ(referred_file(disk, shared_path).value(), std::nullopt);
}

TEST_F(References, ThatLeadNowhereAreCorrupt) {
  refer();
  EXPECT_EQ(error_of_reading(), ErrorCode::kCorrupt);
  put_shared(std::as_bytes(std::span(page)));
  EXPECT_EQ(error_of_reading(), ErrorCode::kCorrupt) << "one leads to a file in one step";
  put_shared(file.plain());
  ASSERT_TRUE(disk.flip_bit(kName, 8 * 20));
  EXPECT_EQ(error_of_reading(), ErrorCode::kCorrupt);
  EXPECT_FALSE(referred_file(disk, kName));
}

}  // namespace
}  // namespace deepfreeze
