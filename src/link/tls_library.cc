#include "link/tls_library.h"

#include <fmt/format.h>

#include "base/openssl.h"
#include "base/try.h"

namespace deepfreeze::tls {
namespace {

Status find_errors_and_keys(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("ERR_get_error", found.next_error));
  DF_TRY_VOID(library.find("ERR_clear_error", found.clear_errors));
  DF_TRY_VOID(library.find("ERR_reason_error_string", found.error_reason));
  DF_TRY_VOID(library.find("EVP_PKEY_Q_keygen", found.make_key));
  DF_TRY_VOID(library.find("EVP_PKEY_free", found.free_key));
  DF_TRY_VOID(library.find("i2d_PUBKEY", found.public_bytes));
  DF_TRY_VOID(library.find("i2d_PrivateKey", found.private_bytes));
  return library.find("d2i_AutoPrivateKey", found.read_private);
}

Status find_certificates(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("X509_new", found.make_certificate));
  DF_TRY_VOID(library.find("X509_free", found.free_certificate));
  DF_TRY_VOID(library.find("X509_set_version", found.set_version));
  DF_TRY_VOID(library.find("X509_get_serialNumber", found.serial_number));
  DF_TRY_VOID(library.find("ASN1_INTEGER_set", found.set_integer));
  DF_TRY_VOID(library.find("X509_getm_notBefore", found.not_before));
  DF_TRY_VOID(library.find("X509_getm_notAfter", found.not_after));
  DF_TRY_VOID(library.find("X509_gmtime_adj", found.set_time_from_now));
  DF_TRY_VOID(library.find("X509_get_subject_name", found.subject));
  DF_TRY_VOID(library.find("X509_NAME_add_entry_by_txt", found.add_to_name));
  DF_TRY_VOID(library.find("X509_set_issuer_name", found.set_issuer));
  DF_TRY_VOID(library.find("X509_set_pubkey", found.set_key));
  DF_TRY_VOID(library.find("EVP_sha256", found.sha256));
  DF_TRY_VOID(library.find("X509_sign", found.sign));
  DF_TRY_VOID(library.find("X509_get_X509_PUBKEY", found.key_of));
  DF_TRY_VOID(library.find("i2d_X509_PUBKEY", found.key_bytes));
  DF_TRY_VOID(library.find("X509_STORE_CTX_get0_cert", found.chain_leaf));
  DF_TRY_VOID(library.find("X509_STORE_CTX_get_ex_data", found.chain_data));
  return library.find("X509_STORE_CTX_set_error", found.set_chain_error);
}

Status find_contexts(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("TLS_method", found.method));
  DF_TRY_VOID(library.find("SSL_CTX_new", found.make_context));
  DF_TRY_VOID(library.find("SSL_CTX_free", found.free_context));
  DF_TRY_VOID(library.find("SSL_CTX_ctrl", found.control_context));
  DF_TRY_VOID(library.find("SSL_CTX_set_options", found.set_options));
  DF_TRY_VOID(library.find("SSL_CTX_set_num_tickets", found.set_ticket_count));
  DF_TRY_VOID(library.find("SSL_CTX_use_certificate", found.use_certificate));
  DF_TRY_VOID(library.find("SSL_CTX_use_PrivateKey", found.use_key));
  DF_TRY_VOID(library.find("SSL_CTX_set_verify", found.set_verify));
  return library.find("SSL_CTX_set_cert_verify_callback", found.set_verifier);
}

Status find_sessions(const LoadedLibrary& library, Library& found) {
  DF_TRY_VOID(library.find("SSL_new", found.make_session));
  DF_TRY_VOID(library.find("SSL_free", found.free_session));
  DF_TRY_VOID(library.find("SSL_set_fd", found.set_socket));
  DF_TRY_VOID(library.find("SSL_set_ex_data", found.set_data));
  DF_TRY_VOID(library.find("SSL_get_ex_data", found.data));
  DF_TRY_VOID(library.find("SSL_get_ex_data_X509_STORE_CTX_idx", found.session_index));
  DF_TRY_VOID(library.find("SSL_set_accept_state", found.accept));
  DF_TRY_VOID(library.find("SSL_set_connect_state", found.connect));
  DF_TRY_VOID(library.find("SSL_do_handshake", found.handshake));
  DF_TRY_VOID(library.find("SSL_read", found.read));
  DF_TRY_VOID(library.find("SSL_write", found.write));
  DF_TRY_VOID(library.find("SSL_key_update", found.update_key));
  DF_TRY_VOID(library.find("SSL_shutdown", found.shutdown));
  return library.find("SSL_get_error", found.session_error);
}

Result<Library> load() {
  DF_TRY(const auto library, open_openssl("nodes can't be linked without OpenSSL 3 (libssl.so.3)"));
  Library found{};
  DF_TRY_VOID(find_errors_and_keys(library, found));
  DF_TRY_VOID(find_certificates(library, found));
  DF_TRY_VOID(find_contexts(library, found));
  DF_TRY_VOID(find_sessions(library, found));
  return found;
}

}  // namespace

Result<const Library*> library() { return loaded_once<load>(); }

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
  return {ErrorCode::kUnsupported, fmt::format("{}: {}", call, take_failure(library).text)};
}

}  // namespace deepfreeze::tls
