// Libraries that can't be relied on. Each case has its own process, because the library is looked
// for once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "packed/packed_fixture.h"

namespace deepfreeze {
namespace {

// Ends the process: 0 if every block is stored as it is.
[[noreturn]] void pack_with_wrong_library() {
  ::setenv("DEEPFREEZE_ZSTD_LIBRARY", DF_WRONG_ZSTD, 1);
  const DataFile file = mixed_file(2);
  BlockPacker packer = BlockPacker::make(file.header).value();
  bool are_plain = true;
  for (std::uint64_t block = 0; block < 2; ++block) {  // weights, which would pack
    const auto plain = std::span(file.data).subspan(block * kBlockBytes, kBlockBytes);
    const auto stored = packer.store(block, plain, 7);
    are_plain = are_plain && stored.bytes.data() == plain.data() && stored.crc == 7;
  }
  std::_Exit(are_plain ? 0 : 1);
}

[[noreturn]] void pack_with_old_library() {
  ::setenv("DEEPFREEZE_ZSTD_LIBRARY", DF_WRONG_ZSTD, 1);
  ::setenv("DF_TEST_OLD_ZSTD", "1", 1);
  const auto packer = Packer::make();
  if (!packer) std::cerr << packer.error().message();
  std::_Exit(!packer && packer.error().code() == ErrorCode::kUnsupported ? 0 : 1);
}

TEST(WrongZstdDeathTest, ABlockThatDoesNotComeBackIsStoredAsItIs) {
  EXPECT_EXIT(pack_with_wrong_library(), testing::ExitedWithCode(0), "");
}

TEST(WrongZstdDeathTest, AnOldLibraryIsNamed) {
  EXPECT_EXIT(pack_with_old_library(), testing::ExitedWithCode(0), "version 10309 is too old");
}

}  // namespace
}  // namespace deepfreeze
