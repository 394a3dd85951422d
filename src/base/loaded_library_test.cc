#include "base/loaded_library.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace deepfreeze {
namespace {

constexpr const char* kVariable = "LIBRARY_OF_THE_TEST";
constexpr const char* kPurpose = "cosines can't be told";

class LoadedLibraryTest : public testing::Test {
 protected:
  ~LoadedLibraryTest() override { ::unsetenv(kVariable); }
};

TEST_F(LoadedLibraryTest, FindsAFunction) {
  const auto library = LoadedLibrary::open("libm.so.6", kVariable, kPurpose);
  ASSERT_TRUE(library);
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library->find("cos", cosine));
  EXPECT_EQ(cosine(0), 1);
}

TEST_F(LoadedLibraryTest, SaysThatAFunctionIsNotThere) {
  const auto library = LoadedLibrary::open("libm.so.6", kVariable, kPurpose);
  ASSERT_TRUE(library);
  void (*none)() = nullptr;
  const Status found = library->find("no_such_function", none);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(found.error().message().starts_with(
      "cosines can't be told: the library is another one, or too old: "));
  EXPECT_NE(found.error().message().find("no_such_function"), std::string::npos);
  EXPECT_EQ(none, nullptr);
}

TEST_F(LoadedLibraryTest, TheVariableComesFirstUnlessItIsEmpty) {
  ::setenv(kVariable, "libnone.so.1", 1);
  const auto none = LoadedLibrary::open("libm.so.6", kVariable, kPurpose);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(none.error().message().find("libnone.so.1"), std::string::npos);
  ::setenv(kVariable, "", 1);
  EXPECT_TRUE(LoadedLibrary::open("libm.so.6", kVariable, kPurpose));
}

}  // namespace
}  // namespace deepfreeze
