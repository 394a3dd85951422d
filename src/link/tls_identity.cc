#include "link/tls_identity.h"

#include <limits>
#include <utility>

#include "base/secret.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

using tls::Library;

// The bytes before the point, alike in every public key of this curve.
constexpr std::string_view kP256Head(
    "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"
    "\x03\x42\x00\x04",
    27);
constexpr std::size_t kPrivateKeyBytesMax = 4096;
constexpr long kVersion3 = 2;
constexpr long kYear = 365L * 24 * 3600;

bool fill(const Library& library, tls::Certificate* certificate, tls::Key* key) {
  constexpr unsigned char kName[] = "deepfreeze";
  constexpr int kNameBytes = sizeof(kName) - 1;
  // Nobody looks at number, name or dates; they only must be there.
  if (library.set_version(certificate, kVersion3) != 1) return false;
  if (library.set_integer(library.serial_number(certificate), 1) != 1) return false;
  if (library.set_time_from_now(library.not_before(certificate), -kYear) == nullptr) return false;
  if (library.set_time_from_now(library.not_after(certificate), kYear) == nullptr) return false;
  tls::Name* name = library.subject(certificate);
  if (library.add_to_name(name, "CN", tls::kTextAscii, kName, kNameBytes, -1, 0) != 1) return false;
  if (library.set_issuer(certificate, name) != 1) return false;
  if (library.set_key(certificate, key) != 1) return false;
  return library.sign(certificate, key, library.sha256()) > 0;
}

}  // namespace

bool is_public_key(std::string_view bytes) {
  return bytes.size() == kPublicKeyBytes && bytes.starts_with(kP256Head);
}

Result<TlsIdentity> TlsIdentity::make() {
  DF_TRY(const Library* library, tls::library());
  library->clear_errors();
  tls::OwnedKey key(library->make_key(nullptr, nullptr, "EC", "P-256"), {library});
  if (!key) return std::unexpected(tls::failed(*library, "make a key"));
  return of(std::move(key));
}

Result<TlsIdentity> TlsIdentity::take_over(std::string_view private_key) {
  DF_TRY(const Library* library, tls::library());
  library->clear_errors();
  tls::OwnedKey key(nullptr, {library});
  if (private_key.size() <= kPrivateKeyBytesMax) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(private_key.data());
    key.reset(library->read_private(nullptr, &bytes, static_cast<long>(private_key.size())));
  }
  library->clear_errors();
  if (!key) return fail(ErrorCode::kInvalidArgument, "the bytes are no private key");
  return of(std::move(key));
}

Result<TlsIdentity> TlsIdentity::of(tls::OwnedKey key) {
  DF_TRY(const Library* library, tls::library());
  std::string public_key = tls::bytes_of(library->public_bytes, key.get());
  if (!is_public_key(public_key)) {
    return fail(ErrorCode::kInvalidArgument, "the key is not one of the curve P-256");
  }
  tls::OwnedCertificate certificate(library->make_certificate(), {library});
  if (!certificate || !fill(*library, certificate.get(), key.get())) {
    return std::unexpected(tls::failed(*library, "make a certificate"));
  }
  return TlsIdentity(std::move(key), std::move(certificate), std::move(public_key));
}

Result<std::string> TlsIdentity::private_key() const {
  DF_TRY(const Library* library, tls::library());
  std::string bytes = tls::bytes_of(library->private_bytes, key_.get());
  if (bytes.empty()) return std::unexpected(tls::failed(*library, "write a private key"));
  return bytes;
}

void TlsIdentity::wipe(std::string& secret) { deepfreeze::wipe(secret); }

}  // namespace deepfreeze
