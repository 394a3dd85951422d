// Exchanges of a test with a scripted server, by libcurl.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "object/curl_transport.h"
#include "object/test_server.h"

namespace deepfreeze::http_test {

inline constexpr std::chrono::seconds kLong{20};  // never waited for in a test that passes

using Length = ScriptedAnswer::Length;
using End = ScriptedAnswer::End;

inline std::shared_ptr<HttpTransport> transport(const CurlSettings& settings = {}) {
  auto made = make_curl_transport(settings);
  EXPECT_TRUE(made) << made.error().message();
  return std::move(*made);
}

// Answers every request in the same way.
inline TestServer::Script always(ScriptedAnswer answer) {
  return [answer = std::move(answer)](const SeenRequest&) { return answer; };
}

inline HttpRequest get(std::string url) {
  return {.method = "GET", .url = std::move(url), .silence_max = kLong};
}

inline HttpRequest put(std::string url, std::string_view body) {
  return {.method = "PUT",
          .url = std::move(url),
          .body = std::as_bytes(std::span(body)),
          .silence_max = kLong};
}

template <class Condition>
[[nodiscard]] bool await(Condition condition) {
  const auto deadline = Monotonic::now() + kLong;
  while (!condition()) {
    if (Monotonic::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace deepfreeze::http_test
