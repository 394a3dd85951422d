// One HTTP exchange, and the seam at which tests put a store of their own. Value types, any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

struct HttpField {
  std::string name;  // in lower case
  std::string value;
  bool operator==(const HttpField&) const = default;
};

struct HttpRequest {
  std::string method;                    // "PUT"
  std::string url;                       // "http://127.0.0.1:8333/bucket/key?partNumber=1", encoded
  std::vector<HttpField> fields = {};    // all of the header but content-length
  std::span<const std::byte> body = {};  // borrowed until send() returns
  // If it is not empty, the body of a 2xx answer is written here; one that does not fit is an
  // error.
  std::span<std::byte> into = {};
  // Without one byte in either direction, or without a connection.
  std::chrono::milliseconds silence_max{60'000};
  std::chrono::milliseconds whole_max{0};   // for the whole exchange; 0: no bound
  const std::atomic<bool>* stop = nullptr;  // once it is true, send() ends with kCancelled
};

struct HttpResponse {
  int status = 0;                      // 200
  std::vector<HttpField> fields = {};  // names in lower case
  std::string body = {};               // at most kHttpBodyBytesMax; empty if `into` was used
  std::size_t into_bytes = 0;          // that were written to HttpRequest::into

  [[nodiscard]] bool is_success() const { return status >= 200 && status < 300; }
  // The first field of that name, which is in lower case.
  [[nodiscard]] std::optional<std::string_view> field(std::string_view name) const;
};

inline constexpr std::size_t kHttpBodyBytesMax = 16U << 20U;
inline constexpr std::size_t kHttpHeadBytesMax = 256U << 10U;
inline constexpr std::chrono::milliseconds kHttpConnectMax{10'000};

class HttpTransport {
 public:
  HttpTransport() = default;
  HttpTransport(const HttpTransport&) = delete;
  HttpTransport& operator=(const HttpTransport&) = delete;
  virtual ~HttpTransport() = default;

  // Blocks. Any number of threads at once. Redirections are not followed. An error means that no
  // whole answer came, and the server may have acted on the request: kTimeout, kCancelled or kIo.
  // It did nothing, and asking again is useless, if the error is kInvalidArgument (a URL or field
  // that HTTP forbids, a certificate that is not trusted) or kUnsupported (no HTTP on this machine
  // or in a forked child). The request is sent once at most: nothing below this seam repeats it.
  // Messages name method, host, path and cause, but no query and no field, which may hold secrets.
  [[nodiscard]] virtual Result<HttpResponse> send(const HttpRequest& request) = 0;
};

}  // namespace deepfreeze
