// TLS 1.3 over a socket that does not block, with both sides' keys checked by the caller and by
// nothing else. All of a context's streams belong to one thread, which has SIGPIPE blocked: even a
// read may write, to a socket that the other side has closed. No call waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "link/tls_identity.h"

namespace deepfreeze {

class TlsContext {
 public:
  // AES-GCM is safe for 2^24.5 full records under one key (RFC 8446, 5.5), which is 388 GB; a
  // restore may move more, and OpenSSL does not count.
  static constexpr std::uint64_t kKeyBytesMax = std::uint64_t{64} << 30;
  // A copy of the identity's key and certificate stays with the context. Streams encrypt at most so
  // many bytes with one key, or one record more.
  [[nodiscard]] static Result<TlsContext> make(const TlsIdentity& identity,
                                               std::uint64_t key_bytes_max = kKeyBytesMax);

 private:
  friend class TlsStream;
  TlsContext(const tls::Library& library, tls::OwnedContext context, std::uint64_t key_bytes_max)
      : library_(&library), context_(std::move(context)), key_bytes_max_(key_bytes_max) {}

  const tls::Library* library_;
  tls::OwnedContext context_;
  std::uint64_t key_bytes_max_;
};

class TlsStream {
 public:
  enum class Role : std::uint8_t { kDials, kAccepts };
  // Until the socket can be read, or written.
  enum class Waits : std::uint8_t { kNot, kToRead, kToWrite };
  struct Step {
    std::size_t bytes = 0;  // moved; 0 if it waits
    Waits waits = Waits::kNot;
    bool is_end = false;  // of read(): the other side has closed
  };
  // Whether the public key is that of an expected process. Called once, within a handshake().
  using Admits = std::function<bool(std::string_view public_key)>;

  // The socket is lent.
  [[nodiscard]] static Result<std::unique_ptr<TlsStream>> make(const TlsContext& context,
                                                               int socket, Role role,
                                                               Admits admits);
  TlsStream(const TlsContext& context, tls::OwnedSession session, Admits admits)
      : library_(*context.library_),
        key_bytes_max_(context.key_bytes_max_),
        session_(std::move(session)),
        admits_(std::move(admits)) {}
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // After an error no further call but the destructor. kMismatch: one side does not accept the
  // other's key, and the message says which; kIo: all else.
  [[nodiscard]] Result<Waits> handshake();
  // One record at most. If it waits, the next call has the same bytes, or more.
  [[nodiscard]] Result<Step> write(std::string_view bytes);
  // `into` has room for a whole record (kRecordBytes), so that nothing stays behind unseen.
  [[nodiscard]] Result<Step> read(std::span<char> into);
  // Tells the other side that no more will come, if the socket takes it at once.
  void say_end();

  static constexpr std::size_t kRecordBytes = 16 * 1024;

 private:
  friend class TlsContext;
  static int verify(tls::CertificateChain* chain, void* library);
  // Before each call that outcome() is asked about: errors of earlier ones are forgotten.
  void begin_call() const;
  // The wait of a call that returned `returned`, or its error.
  [[nodiscard]] Result<Step> outcome(int returned, std::string_view call);
  [[nodiscard]] Error refused(std::string_view call);

  const tls::Library& library_;
  const std::uint64_t key_bytes_max_;
  tls::OwnedSession session_;
  Admits admits_;
  std::uint64_t bytes_under_key_ = 0;
  bool is_write_under_way_ = false;  // a record waits to be written; it keeps its key
  bool has_refused_ = false;
};

}  // namespace deepfreeze
