// A server of HTTP/1.1 on the loopback for tests, which answers, or does not, as its script says.
// Owns a thread for itself and one for each connection, which its destructor ends and joins.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "object/http.h"

namespace deepfreeze {

struct SeenRequest {
  std::string method;
  std::string target;                  // "/bucket/key?partNumber=1"
  std::vector<HttpField> fields = {};  // names in lower case
  std::string body = {};
  std::size_t connection = 0;  // the first one is 0

  [[nodiscard]] std::optional<std::string> field(std::string_view name) const;
};

struct ScriptedAnswer {
  enum class Length : std::uint8_t { kTold, kChunked, kUntold };
  enum class End : std::uint8_t { kKeepsOpen, kCloses, kFallsSilent };

  int status = 200;
  std::vector<HttpField> fields = {};
  std::string body = {};  // none is sent for HEAD
  Length length = Length::kTold;
  std::size_t bytes_max = SIZE_MAX;    // of head and body; the rest is not sent
  std::chrono::milliseconds pause{0};  // before each byte
  End end = End::kKeepsOpen;
  std::string before = {};  // bytes before the head
};

// Without a name it speaks plain HTTP.
struct TestCertificate {
  std::string certificate_file = {};
  std::string key_file = {};
  bool is_old = false;       // speaks TLS 1.1 and older versions only
  bool wants_http2 = false;  // takes HTTP/2, which it can't speak, if it is offered
};

// How a server reads.
struct TestPace {
  std::size_t body_bytes_max = SIZE_MAX;         // of a body; then it answers
  std::chrono::milliseconds handshake_pause{0};  // before that of TLS
  std::chrono::milliseconds read_pause{0};       // before each kTestReadBytes at most
};
inline constexpr std::size_t kTestReadBytes = 256U << 10U;

class TestServer {
 public:
  // Called by the threads of connections, also by several at once.
  using Script = std::function<ScriptedAnswer(const SeenRequest&)>;

  explicit TestServer(Script script, TestCertificate certificate = {}, TestPace pace = {});
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;
  ~TestServer();

  [[nodiscard]] std::string url(std::string_view target) const;  // "http://127.0.0.1:4711/a"
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::vector<SeenRequest> requests() const;
  // Counts connections that are over, by the script or by the other side.
  [[nodiscard]] std::size_t closed_count() const;

 private:
  class Wire;
  void accept_all();
  void serve(UniqueFd socket, std::size_t connection);
  [[nodiscard]] bool answer(Wire& wire, std::size_t connection);

  const Script script_;
  const TestCertificate certificate_;
  const TestPace pace_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;

  mutable std::mutex mutex_;  // for the rest but acceptor_
  std::vector<SeenRequest> requests_;
  std::vector<int> sockets_;  // of connections that are served
  std::size_t closed_count_ = 0;
  bool is_closing_ = false;
  std::vector<std::jthread> servers_;

  std::jthread acceptor_;
};

}  // namespace deepfreeze
