// Machines without OpenSSL, or with another library under its name. Each case has its own process,
// because the library is looked for once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "link/tls_identity.h"

namespace deepfreeze {
namespace {

// Ends the process: 0 if the error says that links are not supported, and why.
[[noreturn]] void look_for(const char* library) {
  ::setenv("DEEPFREEZE_SSL_LIBRARY", library, 1);
  const auto made = TlsIdentity::make();
  const bool is_refused =
      !made && made.error().code() == ErrorCode::kUnsupported && !TlsIdentity::take_over("any");
  if (!made) std::cerr << made.error().message();
  std::_Exit(is_refused ? 0 : 1);
}

TEST(NoTlsLibraryDeathTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_EXIT(look_for("/nowhere/libssl.so"), testing::ExitedWithCode(0),
              "without OpenSSL 3 .*/nowhere/libssl.so");
}

TEST(NoTlsLibraryDeathTest, AnotherLibraryIsNone) {
  EXPECT_EXIT(look_for("libm.so.6"), testing::ExitedWithCode(0),
              "another one, or too old.*OPENSSL_init_ssl");
}

TEST(NoTlsLibraryDeathTest, AnEmptyNameIsNone) {
  EXPECT_EXIT(
      {
        ::setenv("DEEPFREEZE_SSL_LIBRARY", "", 1);
        std::_Exit(TlsIdentity::make() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace deepfreeze
