// A packed file that version 1 wrote. It never changes: a reader of it must exist for ever. A file
// that is written today may differ, since another libzstd may choose other codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "packed/open_part.h"
#include "packed/packed_fixture.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

constexpr const char* kPacked = "packed.safetensors";

DataFile golden_file() {
  return mixed_file(MixedBytes{.weights = 30'000, .noise = 2'000, .zeros = 120'000});
}

std::vector<std::byte> read_plain(Vfs& vfs, const char* name) {
  const auto part = open_part(vfs, name, Access::kBuffered).value();
  std::vector<std::byte> plain(part->size().value());
  EXPECT_EQ(part->read_at(0, plain), plain.size());
  return plain;
}

TEST(GoldenPackedFile, IsReadAsItWasMeant) {
  const auto vfs = open_posix_vfs(std::string(DF_GOLDEN_DIR) + "/v1").value();
  const auto stored = vfs->open_read(kPacked, Access::kBuffered).value();
  EXPECT_LT(stored->size().value(), golden_file().plain().size() / 3);
  EXPECT_EQ(read_plain(*vfs, kPacked), golden_file().plain());
}

TEST(GoldenPackedFile, IsWrittenWithTheSameBeginning) {
  const std::vector<std::byte> packed = packed_bytes_of(golden_file());
  std::ofstream(testing::TempDir() + "/" + kPacked, std::ios::binary) << as_text(packed);
  std::ifstream golden(std::string(DF_GOLDEN_DIR) + "/v1/" + kPacked, std::ios::binary);
  std::vector<char> begin(kPackedLeadBytes + golden_file().header_bytes.size());
  ASSERT_TRUE(golden.read(begin.data(), static_cast<std::streamsize>(begin.size())));
  EXPECT_EQ(as_text(packed).substr(0, begin.size()), std::string(begin.begin(), begin.end()))
      << "what was written is in " << testing::TempDir();
}

}  // namespace
}  // namespace deepfreeze
