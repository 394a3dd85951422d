#include "link/tls_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/try.h"

namespace deepfreeze::tls {
namespace {

constexpr const char* kLibrary = "libssl.so.3";

std::unexpected<Error> unavailable(const std::string& why) {
  return fail(ErrorCode::kUnsupported,
              "nodes can't be linked without OpenSSL 3 (libssl.so.3): " + why);
}

std::string last_loader_error() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "unknown cause";
}

// dlsym() also looks into the libraries that libssl itself needs, hence into the one libcrypto
// whose objects it takes.
template <class Function>
Status find(void* library, const char* name, Function*& found) {
  found = reinterpret_cast<Function*>(::dlsym(library, name));
  if (found != nullptr) return {};
  return unavailable(
      fmt::format("the library is another one, or too old: {}", last_loader_error()));
}

Status find_errors_and_keys(void* library, Library& found) {
  DF_TRY_VOID(find(library, "OPENSSL_init_ssl", found.init));
  DF_TRY_VOID(find(library, "ERR_get_error", found.next_error));
  DF_TRY_VOID(find(library, "ERR_clear_error", found.clear_errors));
  DF_TRY_VOID(find(library, "ERR_reason_error_string", found.error_reason));
  DF_TRY_VOID(find(library, "EVP_PKEY_Q_keygen", found.make_key));
  DF_TRY_VOID(find(library, "EVP_PKEY_free", found.free_key));
  DF_TRY_VOID(find(library, "i2d_PUBKEY", found.public_bytes));
  DF_TRY_VOID(find(library, "i2d_PrivateKey", found.private_bytes));
  return find(library, "d2i_AutoPrivateKey", found.read_private);
}

Status find_certificates(void* library, Library& found) {
  DF_TRY_VOID(find(library, "X509_new", found.make_certificate));
  DF_TRY_VOID(find(library, "X509_free", found.free_certificate));
  DF_TRY_VOID(find(library, "X509_set_version", found.set_version));
  DF_TRY_VOID(find(library, "X509_get_serialNumber", found.serial_number));
  DF_TRY_VOID(find(library, "ASN1_INTEGER_set", found.set_integer));
  DF_TRY_VOID(find(library, "X509_getm_notBefore", found.not_before));
  DF_TRY_VOID(find(library, "X509_getm_notAfter", found.not_after));
  DF_TRY_VOID(find(library, "X509_gmtime_adj", found.set_time_from_now));
  DF_TRY_VOID(find(library, "X509_get_subject_name", found.subject));
  DF_TRY_VOID(find(library, "X509_NAME_add_entry_by_txt", found.add_to_name));
  DF_TRY_VOID(find(library, "X509_set_issuer_name", found.set_issuer));
  DF_TRY_VOID(find(library, "X509_set_pubkey", found.set_key));
  DF_TRY_VOID(find(library, "EVP_sha256", found.sha256));
  DF_TRY_VOID(find(library, "X509_sign", found.sign));
  DF_TRY_VOID(find(library, "X509_get_X509_PUBKEY", found.key_of));
  DF_TRY_VOID(find(library, "i2d_X509_PUBKEY", found.key_bytes));
  DF_TRY_VOID(find(library, "X509_STORE_CTX_get0_cert", found.chain_leaf));
  DF_TRY_VOID(find(library, "X509_STORE_CTX_get_ex_data", found.chain_data));
  return find(library, "X509_STORE_CTX_set_error", found.set_chain_error);
}

Status find_contexts(void* library, Library& found) {
  DF_TRY_VOID(find(library, "TLS_method", found.method));
  DF_TRY_VOID(find(library, "SSL_CTX_new", found.make_context));
  DF_TRY_VOID(find(library, "SSL_CTX_free", found.free_context));
  DF_TRY_VOID(find(library, "SSL_CTX_ctrl", found.control_context));
  DF_TRY_VOID(find(library, "SSL_CTX_set_options", found.set_options));
  DF_TRY_VOID(find(library, "SSL_CTX_set_num_tickets", found.set_ticket_count));
  DF_TRY_VOID(find(library, "SSL_CTX_use_certificate", found.use_certificate));
  DF_TRY_VOID(find(library, "SSL_CTX_use_PrivateKey", found.use_key));
  DF_TRY_VOID(find(library, "SSL_CTX_set_verify", found.set_verify));
  return find(library, "SSL_CTX_set_cert_verify_callback", found.set_verifier);
}

Status find_sessions(void* library, Library& found) {
  DF_TRY_VOID(find(library, "SSL_new", found.make_session));
  DF_TRY_VOID(find(library, "SSL_free", found.free_session));
  DF_TRY_VOID(find(library, "SSL_set_fd", found.set_socket));
  DF_TRY_VOID(find(library, "SSL_set_ex_data", found.set_data));
  DF_TRY_VOID(find(library, "SSL_get_ex_data", found.data));
  DF_TRY_VOID(find(library, "SSL_get_ex_data_X509_STORE_CTX_idx", found.session_index));
  DF_TRY_VOID(find(library, "SSL_set_accept_state", found.accept));
  DF_TRY_VOID(find(library, "SSL_set_connect_state", found.connect));
  DF_TRY_VOID(find(library, "SSL_do_handshake", found.handshake));
  DF_TRY_VOID(find(library, "SSL_read", found.read));
  DF_TRY_VOID(find(library, "SSL_write", found.write));
  DF_TRY_VOID(find(library, "SSL_key_update", found.update_key));
  DF_TRY_VOID(find(library, "SSL_shutdown", found.shutdown));
  return find(library, "SSL_get_error", found.session_error);
}

Result<Library> load() {
  const char* chosen = std::getenv("DEEPFREEZE_SSL_LIBRARY");
  const char* name = chosen != nullptr && *chosen != '\0' ? chosen : kLibrary;
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);  // stays: OpenSSL can't be unloaded
  if (library == nullptr) return unavailable(last_loader_error());
  Library found{};
  DF_TRY_VOID(find_errors_and_keys(library, found));
  DF_TRY_VOID(find_certificates(library, found));
  DF_TRY_VOID(find_contexts(library, found));
  DF_TRY_VOID(find_sessions(library, found));
  // A handler at exit would free the library's state below a thread that still uses it.
  if (found.init(kInitNoAtExit, nullptr) != 1) {
    return unavailable(failed(found, "OPENSSL_init_ssl").message());
  }
  return found;
}

}  // namespace

Result<const Library*> library() {
  static const Result<Library> kLoaded = load();
  if (!kLoaded) return std::unexpected(kLoaded.error());
  return &*kLoaded;
}

Failure take_failure(const Library& library) {
  constexpr unsigned long kReasonMask = 0x7fffff;
  const unsigned long error = library.next_error();
  library.clear_errors();
  if (error == 0) return {.text = "unknown cause"};
  const char* reason = library.error_reason(error);
  return {.reason = static_cast<int>(error & kReasonMask),
          .text = reason != nullptr ? reason : fmt::format("error {:x}", error)};
}

Error failed(const Library& library, std::string_view call) {
  return {ErrorCode::kInternal, fmt::format("{}: {}", call, take_failure(library).text)};
}

}  // namespace deepfreeze::tls
