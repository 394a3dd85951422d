#include "object/digests.h"

#include <utility>

#include "base/openssl.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

// OpenSSL 3.0 (docs.openssl.org).
struct DigestFunctions {
  LoadedLibrary library;
  int (*digest)(void* context, const char* name, const char* properties, const void* bytes,
                std::size_t byte_count, unsigned char* into, std::size_t* written);  // EVP_Q_digest
  unsigned char* (*mac)(void* context, const char* name, const char* properties, const char* digest,
                        const void* parameters, const void* key, std::size_t key_bytes,
                        const unsigned char* bytes, std::size_t byte_count, unsigned char* into,
                        std::size_t into_bytes,
                        std::size_t* written);  // EVP_Q_mac
  void (*clear_errors)();                       // ERR_clear_error
};

Result<DigestFunctions> load_digests() {
  DF_TRY(auto library, open_openssl("requests to an object store can't be signed without "
                                    "OpenSSL 3 (libssl.so.3)"));
  DigestFunctions found{.library = std::move(library)};
  DF_TRY_VOID(found.library.find("EVP_Q_digest", found.digest));
  DF_TRY_VOID(found.library.find("EVP_Q_mac", found.mac));
  DF_TRY_VOID(found.library.find("ERR_clear_error", found.clear_errors));
  return found;
}

Result<const DigestFunctions*> digest_functions() { return loaded_once<load_digests>(); }

// The thread's queue of errors belongs to all that use OpenSSL here.
std::unexpected<Error> no_sha256(const DigestFunctions& functions) {
  functions.clear_errors();
  return functions.library.unavailable("it does not offer SHA-256");
}

}  // namespace

Result<Sha256> sha256(std::span<const std::byte> bytes) {
  DF_TRY(const DigestFunctions* functions, digest_functions());
  Sha256 made{};
  std::size_t written = 0;
  const int done = functions->digest(nullptr, "SHA2-256", nullptr, bytes.data(), bytes.size(),
                                     made.data(), &written);
  if (done != 1 || written != made.size()) return no_sha256(*functions);
  return made;
}

Result<Sha256> sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Result<Sha256> hmac_sha256(std::span<const std::uint8_t> key, std::string_view text) {
  DF_TRY(const DigestFunctions* functions, digest_functions());
  Sha256 made{};
  std::size_t written = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const auto* done =
      functions->mac(nullptr, "HMAC", nullptr, "SHA2-256", nullptr, key.data(), key.size(), bytes,
                     text.size(), made.data(), made.size(), &written);
  if (done == nullptr || written != made.size()) return no_sha256(*functions);
  return made;
}

std::string lower_case_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4U]);
    text.push_back(kDigits[byte & 0xfU]);
  }
  return text;
}

}  // namespace deepfreeze
