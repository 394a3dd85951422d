// Machines without Expat. Each case has its own process, because the library is looked for once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "object/xml.h"

namespace deepfreeze {
namespace {

// Ends the process: 0 if the error says that it is not supported, and why.
[[noreturn]] void read_with(const char* library) {
  ::setenv("DEEPFREEZE_EXPAT_LIBRARY", library, 1);
  const auto root = parse_xml("<a/>");
  if (!root) std::cerr << root.error().message();
  std::_Exit(!root && root.error().code() == ErrorCode::kUnsupported ? 0 : 1);
}

TEST(NoExpatLibraryDeathTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_EXIT(read_with("/nowhere/libexpat.so"), testing::ExitedWithCode(0),
              "without Expat .*/nowhere/libexpat.so");
}

TEST(NoExpatLibraryDeathTest, AnotherLibraryIsNone) {
  EXPECT_EXIT(read_with("libm.so.6"), testing::ExitedWithCode(0),
              "another one, or too old.*XML_ParserCreate");
}

}  // namespace
}  // namespace deepfreeze
