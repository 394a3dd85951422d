// The key pair by which other processes of a job know this one, and a certificate signed by itself
// that carries it. In memory only. Any thread, if nobody moves it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "link/tls_library.h"

namespace deepfreeze {

inline constexpr std::size_t kPublicKeyBytes = 91;

// Whether it is a public key of curve P-256 as public_key() writes it. The point is not checked
// here.
[[nodiscard]] bool is_public_key(std::string_view bytes);

class TlsIdentity {
 public:
  // A key that nobody else has. kUnsupported without OpenSSL, or if it refuses such a key.
  [[nodiscard]] static Result<TlsIdentity> make();
  // The identity of a process that is gone, from its private_key(). kInvalidArgument.
  [[nodiscard]] static Result<TlsIdentity> take_over(std::string_view private_key);

  // kPublicKeyBytes bytes (DER, SubjectPublicKeyInfo).
  [[nodiscard]] const std::string& public_key() const { return public_key_; }
  // A secret, for the heir alone (DER). The holder wipes it with wipe().
  [[nodiscard]] Result<std::string> private_key() const;
  static void wipe(std::string& secret);

  [[nodiscard]] tls::Key* key() const { return key_.get(); }
  [[nodiscard]] tls::Certificate* certificate() const { return certificate_.get(); }

 private:
  TlsIdentity(tls::OwnedKey key, tls::OwnedCertificate certificate, std::string public_key)
      : key_(std::move(key)),
        certificate_(std::move(certificate)),
        public_key_(std::move(public_key)) {}
  [[nodiscard]] static Result<TlsIdentity> of(tls::OwnedKey key);

  tls::OwnedKey key_;
  tls::OwnedCertificate certificate_;
  std::string public_key_;
};

}  // namespace deepfreeze
