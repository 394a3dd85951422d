// A connection to one server by libcurl, and the exchanges on it, one after the other. Owned by a
// pool or by the thread that uses it.
//
// Only the first exchange connects. A later one fails if the connection turns out to be closed:
// libcurl would send the request again on a new one, although the server may have acted on it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "object/curl_exchange.h"

namespace deepfreeze {

// Below the age at which libcurl would take a new connection (118 s), and firewalls forget an old.
inline constexpr std::chrono::seconds kIdleConnectionMax{60};

class CurlSession {
 public:
  // `ca_bundle` as in CurlSettings.
  CurlSession(const curl::Library& library, std::string_view origin, std::string ca_bundle)
      : library_(library),
        origin_(origin),
        ca_bundle_(std::move(ca_bundle)),
        multi_(library.make_multi(), {&library}),
        easy_(library.make_easy(), {&library}) {}
  CurlSession(const CurlSession&) = delete;
  CurlSession& operator=(const CurlSession&) = delete;
  ~CurlSession() = default;

  // As HttpTransport::send(); `url` has the session's origin.
  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request, const UrlParts& url);
  // Whether the connection is there for one more exchange.
  [[nodiscard]] bool is_open(Monotonic::time_point now = Monotonic::now()) const;
  [[nodiscard]] const std::string& origin() const { return origin_; }

 private:
  static int open_socket(void* self, int purpose, curl::SocketAddress* address);
  static int close_socket(void* self, int socket);

  [[nodiscard]] Status prepare();
  [[nodiscard]] Result<int> run(const HttpRequest& request, const AnswerReader& answer);
  [[nodiscard]] std::uint64_t moved_bytes(const AnswerReader& answer) const;
  [[nodiscard]] int result();

  const curl::Library& library_;
  const std::string origin_;
  const std::string ca_bundle_;
  bool may_connect_ = true;
  bool is_lost_ = false;  // libcurl would have connected once more
  Monotonic::time_point last_used_;
  std::vector<int> sockets_;  // libcurl's; more than one while it tries addresses
  // These use the members above to the end.
  curl::OwnedMulti multi_;
  curl::OwnedEasy easy_;
};

}  // namespace deepfreeze
