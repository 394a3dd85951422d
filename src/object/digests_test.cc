#include "object/digests.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

std::span<const std::uint8_t> key_of_text(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST(Digests, Sha256OfThePublishedTexts) {  // FIPS 180-2, appendix B
  EXPECT_EQ(lower_case_hex(sha256("").value()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(lower_case_hex(sha256("abc").value()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(lower_case_hex(sha256(std::string(1'000'000, 'a')).value()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Digests, HmacOfThePublishedTexts) {  // RFC 4231, cases 2 and 6
  EXPECT_EQ(
      lower_case_hex(hmac_sha256(key_of_text("Jefe"), "what do ya want for nothing?").value()),
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(lower_case_hex(hmac_sha256(key_of_text(std::string(131, '\xaa')),
                                       "Test Using Larger Than Block-Size Key - Hash Key First")
                               .value()),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// Each case has its own process, because the library is looked for once. 0 if both digests say that
// they are not supported, and why.
[[noreturn]] void digest_with(const char* variable, const char* value) {
  ::setenv(variable, value, 1);
  const auto digest = sha256("abc");
  const auto mac = hmac_sha256(key_of_text("key"), "abc");
  if (digest || mac) std::_Exit(1);
  std::cerr << digest.error().message() << '\n' << mac.error().message();
  std::_Exit(digest.error().code() == ErrorCode::kUnsupported &&
                     mac.error().code() == ErrorCode::kUnsupported
                 ? 0
                 : 1);
}

// In a process of its own, which has loaded no library yet.
class DigestsDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DigestsDeathTest, WithoutOpensslTheErrorNamesIt) {
  EXPECT_EXIT(digest_with("DEEPFREEZE_SSL_LIBRARY", "/nowhere/libssl.so"),
              testing::ExitedWithCode(0), "can't be signed without OpenSSL 3 .*/nowhere/libssl.so");
}

TEST_F(DigestsDeathTest, AnotherLibraryIsNone) {
  EXPECT_EXIT(digest_with("DEEPFREEZE_SSL_LIBRARY", "libm.so.6"), testing::ExitedWithCode(0),
              "another one, or too old");
}

TEST_F(DigestsDeathTest, OneWhoseConfigurationHasNoDigestsSaysSo) {
  const ScopedDir folder;
  const auto path = folder.path() / "openssl.cnf";
  std::ofstream(path) << "openssl_conf = all\n[all]\nproviders = providers\n"
                         "[providers]\nbase = base\n[base]\nactivate = 1\n";
  EXPECT_EXIT(digest_with("OPENSSL_CONF", path.c_str()), testing::ExitedWithCode(0),
              "does not offer SHA-256(.|\n)*does not offer SHA-256");
}

}  // namespace
}  // namespace deepfreeze
