#include "link/tls_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/try.h"

namespace deepfreeze {
namespace {

using tls::Library;

constexpr long kCertificateBytesMax = 16 * 1024;  // of a side whose key is not known yet
constexpr int kStreamIndex = 0;                   // of OpenSSL's places for a program's own data

// Alerts of the other side, as reasons of the library: 1000 more than in RFC 8446, section 6.
constexpr int kAlertBadCertificate = 1042;
constexpr int kAlertCertificateRequired = 1116;
constexpr int kUnexpectedEnd = 294;  // SSL_R_UNEXPECTED_EOF_WHILE_READING

bool set_up(const Library& library, tls::Context* context, const TlsIdentity& identity) {
  const auto control = [&](int command, long number) {
    return library.control_context(context, command, number, nullptr);
  };
  if (control(tls::kSetVersionMin, tls::kVersion13) != 1) return false;
  if (control(tls::kSetVersionMax, tls::kVersion13) != 1) return false;
  control(tls::kSetModes, tls::kPartialWrites | tls::kMovingWriteBuffer);
  // A peer that sends messages of the protocol without end would keep read() from returning.
  control(tls::kClearModes, tls::kAutoRetry);
  control(tls::kSetSessionCache, 0);
  control(tls::kSetCertificateBytesMax, kCertificateBytesMax);
  library.set_options(context, tls::kNoTickets);  // each connection proves both keys anew
  if (library.set_ticket_count(context, 0) != 1) return false;
  if (library.use_certificate(context, identity.certificate()) != 1) return false;
  return library.use_key(context, identity.key()) == 1;
}

std::string public_key_of(const Library& library, const tls::CertificateChain* chain) {
  const tls::Certificate* leaf = library.chain_leaf(chain);
  const tls::CertificateKey* key = leaf != nullptr ? library.key_of(leaf) : nullptr;
  return key != nullptr ? tls::bytes_of(library.key_bytes, key) : std::string();
}

}  // namespace

Result<TlsContext> TlsContext::make(const TlsIdentity& identity, std::uint64_t key_bytes_max) {
  DF_TRY(const Library* library, tls::library());
  library->clear_errors();
  tls::OwnedContext context(library->make_context(library->method()), {library});
  if (!context || !set_up(*library, context.get(), identity)) {
    return std::unexpected(tls::failed(*library, "set up TLS 1.3"));
  }
  library->set_verify(context.get(), tls::kVerifyPeer | tls::kVerifyMustHave, nullptr);
  library->set_verifier(context.get(), &TlsStream::verify, const_cast<Library*>(library));
  return TlsContext(*library, std::move(context), key_bytes_max);
}

Result<std::unique_ptr<TlsStream>> TlsStream::make(const TlsContext& context, int socket, Role role,
                                                   Admits admits) {
  const Library& library = *context.library_;
  library.clear_errors();
  tls::OwnedSession session(library.make_session(context.context_.get()), {&library});
  if (!session || library.set_socket(session.get(), socket) != 1) {
    return std::unexpected(tls::failed(library, "begin TLS"));
  }
  role == Role::kDials ? library.connect(session.get()) : library.accept(session.get());
  auto stream = std::make_unique<TlsStream>(context, std::move(session), std::move(admits));
  if (library.set_data(stream->session_.get(), kStreamIndex, stream.get()) != 1) {
    return std::unexpected(tls::failed(library, "begin TLS"));
  }
  return stream;
}

// Called by OpenSSL in place of its own checks. The proof that the other side has the private key
// of this certificate follows it, in the handshake.
int TlsStream::verify(tls::CertificateChain* chain, void* library_of) {
  const auto& library = *static_cast<const Library*>(library_of);
  const auto* session =
      static_cast<tls::Session*>(library.chain_data(chain, library.session_index()));
  auto* stream =
      session != nullptr ? static_cast<TlsStream*>(library.data(session, kStreamIndex)) : nullptr;
  if (stream != nullptr) {
    const std::string key = public_key_of(library, chain);
    if (is_public_key(key) && stream->admits_(key)) return 1;
    stream->has_refused_ = true;
  }
  library.set_chain_error(chain, tls::kCertificateRejected);
  return 0;
}

Result<TlsStream::Waits> TlsStream::handshake() {
  begin_call();
  const int returned = library_.handshake(session_.get());
  if (returned == 1) return Waits::kNot;
  DF_TRY(const Step step, outcome(returned, "handshake"));
  if (!step.is_end) return step.waits;
  return fail(ErrorCode::kIo, "handshake: the other side has closed the connection");
}

Result<TlsStream::Step> TlsStream::write(std::string_view bytes) {
  begin_call();
  if (bytes_under_key_ >= key_bytes_max_ && !is_write_under_way_) {
    // The message that tells the other side goes with the next record.
    if (library_.update_key(session_.get(), tls::kOwnKeyOnly) != 1) {
      return std::unexpected(refused("change the key"));
    }
    bytes_under_key_ = 0;
  }
  const int size = static_cast<int>(std::min<std::size_t>(bytes.size(), INT_MAX));
  const int returned = library_.write(session_.get(), bytes.data(), size);
  is_write_under_way_ = returned <= 0;
  if (returned <= 0) return outcome(returned, "write");
  bytes_under_key_ += static_cast<std::uint64_t>(returned);
  return Step{.bytes = static_cast<std::size_t>(returned)};
}

Result<TlsStream::Step> TlsStream::read(std::span<char> into) {
  begin_call();
  const int size = static_cast<int>(std::min<std::size_t>(into.size(), INT_MAX));
  const int returned = library_.read(session_.get(), into.data(), size);
  if (returned > 0) return Step{.bytes = static_cast<std::size_t>(returned)};
  return outcome(returned, "read");
}

void TlsStream::say_end() {
  library_.clear_errors();
  std::ignore = library_.shutdown(session_.get());
  library_.clear_errors();
}

void TlsStream::begin_call() const {
  library_.clear_errors();
  errno = 0;
}

Result<TlsStream::Step> TlsStream::outcome(int returned, std::string_view call) {
  const int cause = errno;  // before any other call
  switch (library_.session_error(session_.get(), returned)) {
    case tls::kWantsRead:
      return Step{.waits = Waits::kToRead};
    case tls::kWantsWrite:
      return Step{.waits = Waits::kToWrite};
    case tls::kPeerClosed:
      return Step{.is_end = true};
    case tls::kErrorOfSystem:
      if (cause == 0) return Step{.is_end = true};
      return fail(ErrorCode::kIo, fmt::format("{}: {}", call, std::strerror(cause)), cause);
    default:
      return std::unexpected(refused(call));
  }
}

Error TlsStream::refused(std::string_view call) {
  const tls::Failure failure = tls::take_failure(library_);
  if (has_refused_) return {ErrorCode::kMismatch, "its key is not the expected one"};
  switch (failure.reason) {
    case kAlertBadCertificate:
    case kAlertCertificateRequired:
      return {ErrorCode::kMismatch, "it does not accept this process's key"};
    case kUnexpectedEnd:
      return {ErrorCode::kIo, fmt::format("{}: the other side has closed the connection", call)};
    default:
      return {ErrorCode::kIo, fmt::format("{}: TLS: {}", call, failure.text)};
  }
}

}  // namespace deepfreeze
