#include "object/test_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/loaded_library.h"
#include "base/named_threads.h"
#include "object/url_parts.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kHeadEnd = "\r\n\r\n";

using ChooseProtocol = int(void* session, const unsigned char** chosen, unsigned char* bytes,
                           const unsigned char* offered, unsigned offered_bytes, void* argument);

int choose_http2(void* /*session*/, const unsigned char** chosen, unsigned char* bytes,
                 const unsigned char* offered, unsigned offered_bytes, void* /*argument*/) {
  constexpr int kChosen = 0;   // SSL_TLSEXT_ERR_OK
  constexpr int kNothing = 3;  // SSL_TLSEXT_ERR_NOACK
  const std::string_view names(reinterpret_cast<const char*>(offered), offered_bytes);
  const std::size_t found = names.find("\x02h2");
  if (found == std::string_view::npos) return kNothing;
  *chosen = offered + found + 1;
  *bytes = 2;
  return kChosen;
}

// The functions of libssl.so.3 that a server needs (docs.openssl.org).
struct ServerTls {
  const void* (*method)();
  void* (*make_context)(const void* method);
  void (*free_context)(void* context);
  long (*control)(void* context, int command, long number, void* argument);
  int (*use_certificate)(void* context, const char* file);
  int (*use_key)(void* context, const char* file, int type);
  int (*use_ciphers)(void* context, const char* names);
  void (*set_chooser)(void* context, ChooseProtocol* choose, void* argument);
  void* (*make_session)(void* context);
  void (*free_session)(void* session);
  int (*set_socket)(void* session, int socket);
  int (*accept)(void* session);
  int (*read)(void* session, void* into, int bytes);
  int (*write)(void* session, const void* from, int bytes);
};

ServerTls find_server_tls() {
  const auto library = LoadedLibrary::open("libssl.so.3", "DEEPFREEZE_SSL_LIBRARY", "no server");
  ServerTls tls{};
  const bool is_found =
      library && library->find("TLS_server_method", tls.method) &&
      library->find("SSL_CTX_new", tls.make_context) &&
      library->find("SSL_CTX_free", tls.free_context) &&
      library->find("SSL_CTX_ctrl", tls.control) &&
      library->find("SSL_CTX_use_certificate_chain_file", tls.use_certificate) &&
      library->find("SSL_CTX_use_PrivateKey_file", tls.use_key) &&
      library->find("SSL_CTX_set_cipher_list", tls.use_ciphers) &&
      library->find("SSL_CTX_set_alpn_select_cb", tls.set_chooser) &&
      library->find("SSL_new", tls.make_session) && library->find("SSL_free", tls.free_session) &&
      library->find("SSL_set_fd", tls.set_socket) && library->find("SSL_accept", tls.accept) &&
      library->find("SSL_read", tls.read) && library->find("SSL_write", tls.write);
  if (!is_found) std::abort();  // no test of TLS can go on
  return tls;
}

std::string text_of(const HttpField& field) {
  return fmt::format("{}: {}\r\n", field.name, field.value);
}

std::string bytes_of(const ScriptedAnswer& answer, bool has_body) {
  std::string text = fmt::format("{}HTTP/1.1 {} Scripted\r\n", answer.before, answer.status);
  for (const HttpField& field : answer.fields) text += text_of(field);
  if (answer.length == ScriptedAnswer::Length::kTold) {
    text += fmt::format("Content-Length: {}\r\n", answer.body.size());
  } else if (answer.length == ScriptedAnswer::Length::kChunked) {
    text += "Transfer-Encoding: chunked\r\n";
  }
  text += "\r\n";
  if (!has_body) return text;
  if (answer.length != ScriptedAnswer::Length::kChunked) return text + answer.body;
  constexpr std::size_t kChunk = 7'000;
  for (std::size_t at = 0; at < answer.body.size(); at += kChunk) {
    const std::string chunk = answer.body.substr(at, kChunk);
    text += fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
  }
  return text + "0\r\n\r\n";
}

SeenRequest head_of(std::string_view head) {
  SeenRequest request;
  const std::string_view first = head.substr(0, head.find("\r\n"));
  request.method = first.substr(0, first.find(' '));
  const std::size_t target = request.method.size() + 1;
  request.target = first.substr(target, first.rfind(' ') - target);
  for (std::size_t at = first.size() + 2; at < head.size();) {
    const std::string_view line = head.substr(at, head.find("\r\n", at) - at);
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::size_t value = std::min(line.find_first_not_of(": ", colon), line.size());
    request.fields.push_back({lower_case(line.substr(0, colon)), std::string(line.substr(value))});
    at += line.size() + 2;
  }
  return request;
}

std::size_t body_bytes_of(const SeenRequest& request) {
  const std::string text = request.field("content-length").value_or("0");
  std::size_t bytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes;
}

}  // namespace

std::optional<std::string> SeenRequest::field(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &HttpField::name);
  if (found == fields.end()) return std::nullopt;
  return found->value;
}

// A connection, with TLS or without.
class TestServer::Wire {
 public:
  Wire(int socket, const TestCertificate& certificate, const TestPace& pace)
      : socket_(socket), read_pause_(pace.read_pause) {
    if (certificate.certificate_file.empty()) return;
    std::this_thread::sleep_for(pace.handshake_pause);
    constexpr int kPem = 1;              // SSL_FILETYPE_PEM
    constexpr int kVersionMax = 124;     // SSL_CTRL_SET_MAX_PROTO_VERSION
    constexpr long kVersion11 = 0x0302;  // TLS1_1_VERSION
    static const ServerTls kTls = find_server_tls();
    tls_ = &kTls;
    context_ = tls_->make_context(tls_->method());
    tls_->use_certificate(context_, certificate.certificate_file.c_str());
    tls_->use_key(context_, certificate.key_file.c_str(), kPem);
    if (certificate.wants_http2) tls_->set_chooser(context_, &choose_http2, nullptr);
    if (certificate.is_old) {
      tls_->control(context_, kVersionMax, kVersion11, nullptr);
      tls_->use_ciphers(context_, "ALL:@SECLEVEL=0");
    }
    session_ = tls_->make_session(context_);
    tls_->set_socket(session_, socket_);
    tls_->accept(session_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() {
    if (tls_ == nullptr) return;
    tls_->free_session(session_);
    tls_->free_context(context_);
  }

  // False: the other side has ended the connection.
  bool fill() {
    std::this_thread::sleep_for(read_pause_);
    std::string bytes(kTestReadBytes, '\0');
    const auto count = tls_ != nullptr
                           ? tls_->read(session_, bytes.data(), static_cast<int>(bytes.size()))
                           : ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (count > 0) received_.append(bytes, 0, static_cast<std::size_t>(count));
    return count > 0;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto count = tls_ != nullptr
                             ? tls_->write(session_, bytes.data(), static_cast<int>(bytes.size()))
                             : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  std::string& received() { return received_; }

 private:
  const int socket_;
  const std::chrono::milliseconds read_pause_;
  const ServerTls* tls_ = nullptr;
  void* context_ = nullptr;
  void* session_ = nullptr;
  std::string received_;
};

TestServer::TestServer(Script script, TestCertificate certificate, TestPace pace)
    : script_(std::move(script)),
      certificate_(std::move(certificate)),
      pace_(pace),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  constexpr int kBacklog = 64;
  if (::bind(listener_.get(), any, bytes) != 0 || ::listen(listener_.get(), kBacklog) != 0 ||
      ::getsockname(listener_.get(), any, &bytes) != 0) {
    std::perror("a server for tests");
    std::abort();  // no test can go on without it
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::jthread([this] { accept_all(); });
}

TestServer::~TestServer() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }
  acceptor_.join();
  servers_.clear();  // joins them, while the other members are still there
}

std::string TestServer::url(std::string_view target) const {
  return fmt::format("{}://127.0.0.1:{}{}",
                     certificate_.certificate_file.empty() ? "http" : "https", port_, target);
}

std::vector<SeenRequest> TestServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::size_t TestServer::closed_count() const {
  const std::lock_guard lock(mutex_);
  return closed_count_;
}

void TestServer::accept_all() {
  enter_own_thread("df-test-accept");
  for (std::size_t connection = 0;; ++connection) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) return;
    const std::lock_guard lock(mutex_);
    if (is_closing_) return;
    sockets_.push_back(socket.get());
    servers_.emplace_back([this, connection, own = std::move(socket)]() mutable {
      enter_own_thread("df-test-serve");
      serve(std::move(own), connection);
    });
  }
}

void TestServer::serve(UniqueFd socket, std::size_t connection) {
  {
    Wire wire(socket.get(), certificate_, pace_);
    while (answer(wire, connection)) {
    }
  }
  {
    const std::lock_guard lock(mutex_);
    std::erase(sockets_, socket.get());  // before another connection gets its number
  }
  socket = UniqueFd();
  const std::lock_guard lock(mutex_);
  ++closed_count_;
}

// False: the connection is to be closed.
bool TestServer::answer(Wire& wire, std::size_t connection) {
  std::string& received = wire.received();
  while (!received.contains(kHeadEnd)) {
    if (!wire.fill()) return false;
  }
  const std::size_t head_bytes = received.find(kHeadEnd) + 2;
  SeenRequest request = head_of(std::string_view(received).substr(0, head_bytes));
  request.connection = connection;
  received.erase(0, head_bytes + 2);
  const std::size_t body_bytes = std::min(body_bytes_of(request), pace_.body_bytes_max);
  while (received.size() < body_bytes) {
    if (!wire.fill()) return false;
  }
  request.body = received.substr(0, body_bytes);
  received.erase(0, body_bytes);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const ScriptedAnswer scripted = script_(request);
  const std::string bytes =
      bytes_of(scripted, request.method != "HEAD").substr(0, scripted.bytes_max);
  if (scripted.pause.count() == 0) {
    if (!wire.send(bytes)) return false;
  }
  for (std::size_t i = 0; i < bytes.size() && scripted.pause.count() > 0; ++i) {
    std::this_thread::sleep_for(scripted.pause);
    if (!wire.send({&bytes[i], 1})) return false;
  }
  while (scripted.end == ScriptedAnswer::End::kFallsSilent) {
    if (!wire.fill()) return false;
  }
  return scripted.end == ScriptedAnswer::End::kKeepsOpen;
}

}  // namespace deepfreeze
