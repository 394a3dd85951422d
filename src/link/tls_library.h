// The functions of OpenSSL 3 that a link between nodes needs, found at run time: the build needs
// nothing of OpenSSL, and a machine without it can do everything else. Names and signatures are
// those of OpenSSL 3.0 (docs.openssl.org), and so are the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "deepfreeze/result.h"

namespace deepfreeze::tls {

using Context = struct ContextTag;                    // SSL_CTX
using Session = struct SessionTag;                    // SSL
using Method = struct MethodTag;                      // SSL_METHOD
using Key = struct KeyTag;                            // EVP_PKEY
using Digest = struct DigestTag;                      // EVP_MD
using Certificate = struct CertificateTag;            // X509
using CertificateKey = struct CertificateKeyTag;      // X509_PUBKEY
using CertificateChain = struct CertificateChainTag;  // X509_STORE_CTX
using Name = struct NameTag;                          // X509_NAME
using Integer = struct IntegerTag;                    // ASN1_INTEGER
using Time = struct TimeTag;                          // ASN1_TIME

inline constexpr std::uint64_t kNoTickets = 1U << 14;  // SSL_OP_NO_TICKET
inline constexpr int kSetModes = 33;                   // SSL_CTRL_MODE
inline constexpr int kSetSessionCache = 44;            // SSL_CTRL_SET_SESS_CACHE_MODE
inline constexpr int kSetCertificateBytesMax = 51;     // SSL_CTRL_SET_MAX_CERT_LIST
inline constexpr int kClearModes = 78;                 // SSL_CTRL_CLEAR_MODE
inline constexpr int kSetVersionMin = 123;             // SSL_CTRL_SET_MIN_PROTO_VERSION
inline constexpr int kSetVersionMax = 124;             // SSL_CTRL_SET_MAX_PROTO_VERSION
inline constexpr long kVersion13 = 0x0304;             // TLS1_3_VERSION
inline constexpr long kPartialWrites = 1;              // SSL_MODE_ENABLE_PARTIAL_WRITE
inline constexpr long kMovingWriteBuffer = 2;          // SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
inline constexpr long kAutoRetry = 4;                  // SSL_MODE_AUTO_RETRY
inline constexpr int kVerifyPeer = 1;                  // SSL_VERIFY_PEER
inline constexpr int kVerifyMustHave = 2;              // SSL_VERIFY_FAIL_IF_NO_PEER_CERT
inline constexpr int kCertificateRejected = 28;        // X509_V_ERR_CERT_REJECTED
inline constexpr int kTextAscii = 0x1001;              // MBSTRING_ASC
inline constexpr int kOwnKeyOnly = 0;                  // SSL_KEY_UPDATE_NOT_REQUESTED

// Results of session_error(); any other one is an error of the library.
inline constexpr int kWantsRead = 2;
inline constexpr int kWantsWrite = 3;
inline constexpr int kErrorOfSystem = 5;
inline constexpr int kPeerClosed = 6;

// An object belongs to one thread at a time; the library's own state takes any.
struct Library {
  unsigned long (*next_error)();
  void (*clear_errors)();
  const char* (*error_reason)(unsigned long error);

  Key* (*make_key)(void* context, const char* properties, const char* type, ...);
  void (*free_key)(Key* key);
  int (*public_bytes)(const Key* key, unsigned char** into);
  int (*private_bytes)(const Key* key, unsigned char** into);
  Key* (*read_private)(Key** into, const unsigned char** bytes, long length);

  Certificate* (*make_certificate)();
  void (*free_certificate)(Certificate* certificate);
  int (*set_version)(Certificate* certificate, long version);
  Integer* (*serial_number)(Certificate* certificate);
  int (*set_integer)(Integer* integer, long value);
  Time* (*not_before)(const Certificate* certificate);
  Time* (*not_after)(const Certificate* certificate);
  Time* (*set_time_from_now)(Time* time, long seconds);
  Name* (*subject)(const Certificate* certificate);
  int (*add_to_name)(Name* name, const char* field, int type, const unsigned char* text, int bytes,
                     int place, int set);
  int (*set_issuer)(Certificate* certificate, const Name* name);
  int (*set_key)(Certificate* certificate, Key* key);
  const Digest* (*sha256)();
  int (*sign)(Certificate* certificate, Key* key, const Digest* digest);
  CertificateKey* (*key_of)(const Certificate* certificate);
  int (*key_bytes)(const CertificateKey* key, unsigned char** into);
  Certificate* (*chain_leaf)(const CertificateChain* chain);
  void* (*chain_data)(const CertificateChain* chain, int index);
  void (*set_chain_error)(CertificateChain* chain, int error);

  const Method* (*method)();
  Context* (*make_context)(const Method* method);
  void (*free_context)(Context* context);
  long (*control_context)(Context* context, int command, long number, void* argument);
  std::uint64_t (*set_options)(Context* context, std::uint64_t options);
  int (*set_ticket_count)(Context* context, std::size_t count);
  int (*use_certificate)(Context* context, Certificate* certificate);
  int (*use_key)(Context* context, Key* key);
  void (*set_verify)(Context* context, int mode, void* callback);
  void (*set_verifier)(Context* context, int (*verifier)(CertificateChain* chain, void* argument),
                       void* argument);

  Session* (*make_session)(Context* context);
  void (*free_session)(Session* session);
  int (*set_socket)(Session* session, int fd);
  int (*set_data)(Session* session, int index, void* data);
  void* (*data)(const Session* session, int index);
  int (*session_index)();  // of a session among the data of a chain
  void (*accept)(Session* session);
  void (*connect)(Session* session);
  int (*handshake)(Session* session);
  int (*read)(Session* session, void* into, int bytes);
  int (*write)(Session* session, const void* from, int bytes);
  int (*update_key)(Session* session, int type);
  int (*shutdown)(Session* session);
  int (*session_error)(const Session* session, int returned);
};

// Loaded at the first call, for the life of the process. kUnsupported says why there is none. The
// library is libssl.so.3, or the one that DEEPFREEZE_SSL_LIBRARY names, with its own libcrypto.
[[nodiscard]] Result<const Library*> library();

// The oldest error of this thread, in the library's words; empties the queue of errors.
struct Failure {
  int reason = 0;  // ERR_GET_REASON; 0: none is known
  std::string text;
};
[[nodiscard]] Failure take_failure(const Library& library);
// The same as an error that begins with `call`. kUnsupported: the library refuses the call, as its
// configuration can make it do.
[[nodiscard]] Error failed(const Library& library, std::string_view call);

// The bytes that OpenSSL writes for an object; empty if it can't.
template <class Object>
std::string bytes_of(int (*write)(const Object*, unsigned char**), const Object* object) {
  const int bytes = write(object, nullptr);
  if (bytes <= 0) return {};
  std::string text(static_cast<std::size_t>(bytes), '\0');
  auto* into = reinterpret_cast<unsigned char*>(text.data());
  return write(object, &into) == bytes ? text : std::string();
}

template <class Object, void (*Library::*kFree)(Object*)>
struct Freeing {
  const Library* library = nullptr;
  void operator()(Object* object) const { (library->*kFree)(object); }
};
using OwnedKey = std::unique_ptr<Key, Freeing<Key, &Library::free_key>>;
using OwnedCertificate =
    std::unique_ptr<Certificate, Freeing<Certificate, &Library::free_certificate>>;
using OwnedContext = std::unique_ptr<Context, Freeing<Context, &Library::free_context>>;
using OwnedSession = std::unique_ptr<Session, Freeing<Session, &Library::free_session>>;

}  // namespace deepfreeze::tls
