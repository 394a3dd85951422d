// Machines without OpenSSL, with another library under its name, or with one that refuses. Each
// case has its own process, because the library is looked for once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "link/tls_identity.h"
#include "support/scoped_dir.h"

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

TEST(NoTlsLibraryDeathTest, OneWhoseConfigurationRefusesTheKeyIsNamed) {
  const ScopedDir folder;
  const auto path = folder.path() / "openssl.cnf";
  std::ofstream(path) << "openssl_conf = all\n[all]\nproviders = providers\n"
                         "[providers]\nbase = base\n[base]\nactivate = 1\n";  // has no curves
  EXPECT_EXIT(
      {
        ::setenv("OPENSSL_CONF", path.c_str(), 1);
        const auto made = TlsIdentity::make();
        if (!made) std::cerr << made.error().message();
        const bool is_refused = !made && made.error().code() == ErrorCode::kUnsupported;
        std::_Exit(is_refused ? 0 : 1);
      },
      testing::ExitedWithCode(0), "make a key: ");
}

}  // namespace
}  // namespace deepfreeze
