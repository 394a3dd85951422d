// Machines without libzstd. Each case has its own process, because the library is looked for once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "codec/pack.h"

namespace deepfreeze {
namespace {

// Ends the process: 0 if the error says that it is not supported, and why.
[[noreturn]] void pack_with(const char* library) {
  ::setenv("DEEPFREEZE_ZSTD_LIBRARY", library, 1);
  const auto packer = Packer::make();
  const auto unpacker = Unpacker::make();
  if (!packer) std::cerr << packer.error().message();
  const bool are_refused = !packer && packer.error().code() == ErrorCode::kUnsupported &&
                           !unpacker && unpacker.error().code() == ErrorCode::kUnsupported;
  std::_Exit(are_refused ? 0 : 1);
}

TEST(NoZstdLibraryDeathTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_EXIT(pack_with("/nowhere/libzstd.so"), testing::ExitedWithCode(0),
              "without zstd .*/nowhere/libzstd.so");
}

TEST(NoZstdLibraryDeathTest, AnotherLibraryIsNone) {
  EXPECT_EXIT(pack_with("libm.so.6"), testing::ExitedWithCode(0),
              "another one, or too old.*ZSTD_versionNumber");
}

}  // namespace
}  // namespace deepfreeze
