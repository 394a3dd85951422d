// Exchanges that succeed.
#include "object/curl_transport.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <vector>

#include "object/curl_session.h"
#include "object/http_fixture.h"

namespace deepfreeze::http_test {
namespace {

// While it lives, a variable of the environment has a value of the test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

std::string random_text(std::size_t bytes) {
  std::mt19937_64 random(7);
  std::string text(bytes, '\0');
  for (char& letter : text) letter = static_cast<char>(random());
  return text;
}

TEST(CurlTransport, BringsAnAnswer) {
  TestServer server(
      always({.status = 404, .fields = {{"X-Amz-Request-Id", "17"}}, .body = "<Error/>"}));
  const auto answer = transport()->send(get(server.url("/bucket/key?a=b%20c")));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->field("x-amz-request-id"), "17");
  EXPECT_EQ(answer->body, "<Error/>");
  EXPECT_EQ(server.requests().at(0).target, "/bucket/key?a=b%20c");
}

TEST(CurlTransport, SendsTheFieldsOfTheRequestAndNoOthers) {
  TestServer server(always({}));
  HttpRequest request = put(server.url("/a"), "body");
  request.fields = {{"host", "store.example"}, {"x-amz-date", "today, or not"}, {"x-empty", ""}};
  ASSERT_TRUE(transport()->send(request));
  const SeenRequest seen = server.requests().at(0);
  EXPECT_EQ(seen.method, "PUT");
  EXPECT_EQ(seen.body, "body");
  EXPECT_EQ(seen.field("host"), "store.example");
  EXPECT_EQ(seen.field("x-amz-date"), "today, or not");
  EXPECT_EQ(seen.field("x-empty"), "");
  EXPECT_EQ(seen.field("content-length"), "4");
  EXPECT_EQ(seen.fields.size(), 4U);
}

TEST(CurlTransport, SaysTheLengthOfAnEmptyBody) {
  TestServer server(always({}));
  const auto http = transport();
  for (const char* method : {"PUT", "POST", "GET", "DELETE"}) {
    ASSERT_TRUE(http->send({.method = method, .url = server.url("/a")})) << method;
  }
  const auto seen = server.requests();
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0].field("content-length"), "0");
  EXPECT_EQ(seen[1].method, "POST");
  EXPECT_EQ(seen[1].field("content-length"), "0");
  EXPECT_EQ(seen[2].field("content-length"), std::nullopt);
  EXPECT_EQ(seen[3].method, "DELETE");
  EXPECT_EQ(seen[3].field("content-length"), std::nullopt);
}

TEST(CurlTransport, SendsABodyWithEachMethod) {
  TestServer server(always({}));
  HttpRequest request = put(server.url("/a?delete"), "<Delete/>");
  request.method = "POST";
  ASSERT_TRUE(transport()->send(request));
  EXPECT_EQ(server.requests().at(0).method, "POST");
  EXPECT_EQ(server.requests().at(0).body, "<Delete/>");
  EXPECT_EQ(server.requests().at(0).field("content-type"), std::nullopt);
}

TEST(CurlTransport, SendsALargeBodyBitForBit) {
  TestServer server(always({}));
  const std::string body = random_text((40U << 20U) + 1);
  const auto answer = transport()->send(put(server.url("/a"), body));
  ASSERT_TRUE(answer) << answer.error().message();
  const auto seen = server.requests();
  EXPECT_TRUE(seen.at(0).body == body);
  EXPECT_EQ(seen.at(0).field("expect"), std::nullopt);
  EXPECT_EQ(seen.at(0).field("content-length"), std::to_string(body.size()));
}

TEST(CurlTransport, ReadsARangeIntoItsPlace) {
  const std::string body = random_text(1'000'000);
  TestServer server(always({.status = 206, .body = body}));
  std::vector<std::byte> place(body.size() + 1);
  HttpRequest request = get(server.url("/a"));
  request.fields = {{"range", "bytes=0-999999"}};
  request.into = std::span(place).first(body.size());
  const auto answer = transport()->send(request);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->into_bytes, body.size());
  EXPECT_TRUE(std::ranges::equal(request.into, std::as_bytes(std::span(body))));
  EXPECT_EQ(place.back(), std::byte{0});
  EXPECT_EQ(server.requests().at(0).field("range"), "bytes=0-999999");
}

TEST(CurlTransport, ReadsChunkedAnswers) {
  const std::string body = random_text(100'000);
  TestServer server(always({.body = body, .length = Length::kChunked}));
  std::vector<std::byte> place(body.size());
  HttpRequest request = get(server.url("/a"));
  const auto http = transport();
  EXPECT_TRUE(http->send(request)->body == body);
  request.into = place;
  EXPECT_EQ(http->send(request)->into_bytes, body.size());
  EXPECT_TRUE(std::ranges::equal(place, std::as_bytes(std::span(body))));
}

TEST(CurlTransport, ReadsNoBodyAfterHead) {
  TestServer server(always({.body = std::string(1'000, 'x')}));
  const auto http = transport();
  const HttpRequest request = {.method = "HEAD", .url = server.url("/a"), .silence_max = kLong};
  for (int i = 0; i < 2; ++i) {
    const auto answer = http->send(request);
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->field("content-length"), "1000");
    EXPECT_EQ(answer->body, "");
  }
  EXPECT_EQ(server.requests().at(1).method, "HEAD");
  EXPECT_EQ(server.requests().at(1).connection, 0U);
}

TEST(CurlTransport, PassesOverInterimAnswers) {
  TestServer server(always({.body = "x", .before = "HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n"}));
  const auto answer = transport()->send(get(server.url("/a")));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->field("a"), std::nullopt);
}

TEST(CurlTransport, FollowsNoRedirection) {
  TestServer server([](const SeenRequest&) {
    return ScriptedAnswer{.status = 307, .fields = {{"Location", "/elsewhere"}}};
  });
  const auto answer = transport()->send(get(server.url("/a")));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 307);
  EXPECT_EQ(answer->field("location"), "/elsewhere");
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(CurlTransport, SendsPathsAsTheyAre) {
  TestServer server(always({}));
  ASSERT_TRUE(transport()->send(get(server.url("/a/./b/../c//d%2Fe"))));
  EXPECT_EQ(server.requests().at(0).target, "/a/./b/../c//d%2Fe");
}

TEST(CurlTransport, KeepsNoCookies) {
  TestServer server(always({.fields = {{"Set-Cookie", "a=b; Path=/"}}}));
  const auto http = transport();
  ASSERT_TRUE(http->send(get(server.url("/a"))));
  ASSERT_TRUE(http->send(get(server.url("/a"))));
  EXPECT_EQ(server.requests().at(1).field("cookie"), std::nullopt);
}

TEST(CurlTransport, UsesAConnectionAgain) {
  TestServer server(always({.body = "x"}));
  const auto http = transport();
  ASSERT_TRUE(http->send(put(server.url("/a"), "one")));
  ASSERT_TRUE(http->send({.method = "HEAD", .url = server.url("/a"), .silence_max = kLong}));
  const auto answer = http->send(get(server.url("/b")));  // the handle remembers neither
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, "x");
  const auto seen = server.requests();
  EXPECT_EQ(seen.at(2).method, "GET");
  EXPECT_EQ(seen.at(2).connection, 0U);
}

TEST(CurlTransport, UsesNoConnectionThatWasIdleForLong) {
  TestServer server(always({}));
  const std::string url = server.url("/a");
  const UrlParts parts = split_url(url).value();
  CurlSession session(*curl::library().value(), parts.origin, "");
  EXPECT_FALSE(session.is_open());
  const auto begin = Monotonic::now();
  ASSERT_TRUE(session.send(get(url), parts));
  EXPECT_TRUE(session.is_open());
  EXPECT_TRUE(session.is_open(begin + kIdleConnectionMax));
  EXPECT_FALSE(session.is_open(Monotonic::now() + kIdleConnectionMax));
}

TEST(CurlTransport, KeepsConnectionsOfDifferentServersApart) {
  TestServer one(always({.body = "1"}));
  TestServer other(always({.body = "2"}));
  const auto http = transport();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(http->send(get(one.url("/a")))->body, "1");
    EXPECT_EQ(http->send(get(other.url("/a")))->body, "2");
  }
  EXPECT_EQ(one.requests().at(1).connection, 0U);
  EXPECT_EQ(other.requests().at(1).connection, 0U);
}

TEST(CurlTransport, KnowsWhenItsServerEndsTheConnection) {
  TestServer server(always({.fields = {{"Connection", "close"}}}));
  const std::string url = server.url("/a");
  const UrlParts parts = split_url(url).value();
  CurlSession session(*curl::library().value(), parts.origin, "");
  ASSERT_TRUE(session.send(get(url), parts));
  const UniqueFd one(::dup(STDOUT_FILENO));  // may have the socket's number now
  const UniqueFd other(::dup(STDOUT_FILENO));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  EXPECT_FALSE(session.is_open());
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// Asks a server for so many answers at once.
class Crowd {
 public:
  [[nodiscard]] TestServer::Script script() {
    return [this](const SeenRequest&) {
      ++arrived_;
      EXPECT_TRUE(await([&] { return arrived_ >= expected_; }));
      return ScriptedAnswer{};
    };
  }
  void ask(HttpTransport& http, const std::string& url, std::size_t count) {
    expected_ += count;
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&] { EXPECT_TRUE(http.send(get(url))); });
    }
  }

 private:
  std::atomic<std::size_t> arrived_ = 0;
  std::atomic<std::size_t> expected_ = 0;
};

TEST(CurlTransport, KeepsNoPlaceForAConnectionThatHasEnded) {
  Crowd crowd;
  TestServer server(crowd.script());
  TestServer other(always({.fields = {{"Connection", "close"}}}));
  const auto http = transport();
  crowd.ask(*http, server.url("/a"), kIdleConnectionsMax);
  ASSERT_TRUE(http->send(get(other.url("/a"))));
  crowd.ask(*http, server.url("/a"), kIdleConnectionsMax);
  const auto seen = server.requests();
  EXPECT_LT(std::ranges::max(seen, {}, &SeenRequest::connection).connection, kIdleConnectionsMax);
}

TEST(CurlTransport, EndsTheOldestIdleConnections) {
  Crowd crowd;
  TestServer server(crowd.script());
  const auto http = transport();
  crowd.ask(*http, server.url("/a"), kIdleConnectionsMax + 3);
  EXPECT_TRUE(await([&] { return server.closed_count() == 3; })) << server.closed_count();
}

TEST(CurlTransport, ServesManyThreadsAtOnce) {
  TestServer server([](const SeenRequest& seen) { return ScriptedAnswer{.body = seen.body}; });
  const auto http = transport();
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 16; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < 20; ++i) {
        const std::string body(1 + i * 5'000, static_cast<char>('a' + thread));
        const auto answer = http->send(put(server.url("/a"), body));
        ASSERT_TRUE(answer) << answer.error().message();
        EXPECT_TRUE(answer->body == body);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(server.requests().size(), 320U);
}

TEST(CurlTransport, AsksTheProxyOfTheEnvironmentForOtherMachines) {
  TestServer proxy(always({.body = "by proxy"}));
  const ScopedVariable variable("http_proxy", proxy.url(""));
  const auto answer = transport()->send(get("http://store.invalid/a"));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, "by proxy");
  EXPECT_EQ(proxy.requests().at(0).target, "http://store.invalid/a");
  const ScopedVariable none("no_proxy", "store.invalid");
  EXPECT_FALSE(transport()->send(get("http://store.invalid/a")));
}

TEST(CurlTransport, AsksNoProxyForThisMachineOrItsCloud) {
  TestServer proxy(always({.body = "by proxy"}));
  TestServer server(always({.body = "direct"}));
  const ScopedVariable variable("http_proxy", proxy.url(""));
  const auto http = transport();
  EXPECT_EQ(http->send(get(server.url("/a")))->body, "direct");
  HttpRequest metadata = get("http://169.254.170.23/a");
  metadata.silence_max = std::chrono::milliseconds(200);
  const auto answer = http->send(metadata);
  EXPECT_TRUE(!answer || answer->body != "by proxy");
  EXPECT_TRUE(proxy.requests().empty());
}

}  // namespace
}  // namespace deepfreeze::http_test
