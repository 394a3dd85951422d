#include "link/tls_identity.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

TEST(TlsIdentity, HasAKeyOfItsOwn) {
  const auto one = TlsIdentity::make();
  const auto other = TlsIdentity::make();
  ASSERT_TRUE(one) << one.error().message();
  ASSERT_TRUE(other);
  EXPECT_EQ(one->public_key().size(), kPublicKeyBytes);
  EXPECT_TRUE(is_public_key(one->public_key()));
  EXPECT_NE(one->public_key(), other->public_key());
}

TEST(TlsIdentity, IsTakenOverByAnHeir) {
  const auto one = TlsIdentity::make();
  ASSERT_TRUE(one);
  auto secret = one->private_key();
  ASSERT_TRUE(secret);
  const auto heir = TlsIdentity::take_over(*secret);
  ASSERT_TRUE(heir) << heir.error().message();
  EXPECT_EQ(heir->public_key(), one->public_key());
  EXPECT_EQ(heir->private_key().value(), *secret);
  TlsIdentity::wipe(*secret);
  EXPECT_TRUE(secret->empty());
}

TEST(TlsIdentity, IsNotTakenOverFromOtherBytes) {
  const auto one = TlsIdentity::make();
  ASSERT_TRUE(one);
  const std::string secret = one->private_key().value();
  for (std::size_t size = 0; size < secret.size(); size += 7) {
    const auto taken = TlsIdentity::take_over(secret.substr(0, size));
    ASSERT_EQ(code_of(taken), ErrorCode::kInvalidArgument);
    EXPECT_EQ(taken.error().message(), "the bytes are no private key");
  }
  EXPECT_EQ(code_of(TlsIdentity::take_over(one->public_key())), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(TlsIdentity::take_over(std::string(1 << 20, '0'))),
            ErrorCode::kInvalidArgument);
}

// A function of the library that the product does not need.
template <class Function>
Function* of_openssl(const char* name) {
  static void* const kLibrary = ::dlopen("libcrypto.so.3", RTLD_NOW);
  return reinterpret_cast<Function*>(::dlsym(kLibrary, name));
}

// Peers look at the key alone; but a library may refuse a certificate that lacks the rest.
TEST(TlsIdentity, HasACertificateWithAllItsMembers) {
  const TlsIdentity one = TlsIdentity::make().value();
  const tls::Library& library = *tls::library().value();
  EXPECT_EQ(of_openssl<long(const void*)>("X509_get_version")(one.certificate()), 2) << "as 3";
  EXPECT_EQ(
      of_openssl<long(const void*)>("ASN1_INTEGER_get")(library.serial_number(one.certificate())),
      1);
  const void* issuer = of_openssl<void*(const void*)>("X509_get_issuer_name")(one.certificate());
  const void* subject = library.subject(one.certificate());
  const auto count = of_openssl<int(const void*)>("X509_NAME_entry_count");
  EXPECT_EQ(count(subject), 1);
  EXPECT_EQ(count(issuer), 1);
}

TEST(TlsIdentity, OfAnotherCurveIsNone) {
  const tls::Library& library = *tls::library().value();
  const tls::OwnedKey key(library.make_key(nullptr, nullptr, "EC", "P-384"), {&library});
  ASSERT_TRUE(key);
  std::string bytes(1000, '\0');
  auto* into = reinterpret_cast<unsigned char*>(bytes.data());
  bytes.resize(static_cast<std::size_t>(library.private_bytes(key.get(), &into)));
  const auto taken = TlsIdentity::take_over(bytes);
  ASSERT_EQ(code_of(taken), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(taken.error().message().contains("P-256")) << taken.error().message();
}

TEST(TlsIdentity, PublicKeysHaveOneForm) {
  const std::string good = TlsIdentity::make()->public_key();
  EXPECT_FALSE(is_public_key(""));
  EXPECT_FALSE(is_public_key(good + "x"));
  EXPECT_FALSE(is_public_key(good.substr(1)));
  for (std::size_t i = 0; i < 27; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(is_public_key(bad)) << i;
  }
}

}  // namespace
}  // namespace deepfreeze
