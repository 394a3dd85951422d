// Servers that fail, stay silent or lie, and requests that are given up.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <vector>

#include "object/http_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::http_test {
namespace {

constexpr std::string_view kHead = "HTTP/1.1 200 Scripted\r\nContent-Length: 10\r\n\r\n";
constexpr std::chrono::milliseconds kSoon{300};

// The error of a request that must fail.
Error error_of(const std::shared_ptr<HttpTransport>& http, const HttpRequest& request) {
  const auto answer = http->send(request);
  EXPECT_FALSE(answer);
  return answer ? Error(ErrorCode::kInternal, "no error") : answer.error();
}

TEST(CurlFaults, AnAnswerThatIsCutIsNone) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{20}, kHead.size() - 2, kHead.size(), kHead.size() + 9}) {
    for (const Length length : {Length::kTold, Length::kChunked}) {
      TestServer server(always(
          {.body = "0123456789", .length = length, .bytes_max = bytes, .end = End::kCloses}));
      std::vector<std::byte> place(10);
      HttpRequest request = get(server.url("/a"));
      EXPECT_EQ(error_of(transport(), request).code(), ErrorCode::kIo) << bytes;
      request.into = place;
      EXPECT_EQ(error_of(transport(), request).code(), ErrorCode::kIo) << bytes;
      EXPECT_EQ(server.requests().size(), 2U);
    }
  }
}

TEST(CurlFaults, AnEndThatOnlyTheConnectionTellsIsNotTrusted) {
  TestServer server(always({.body = "0123", .length = Length::kUntold, .end = End::kCloses}));
  HttpRequest request = get(server.url("/a"));
  const auto answer = transport()->send(request);  // XML and JSON show by themselves that they end
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, "0123");
  std::vector<std::byte> place(10);
  request.into = place;
  EXPECT_EQ(error_of(transport(), request).code(), ErrorCode::kIo);
}

TEST(CurlFaults, MoreThanWasAskedForIsRefused) {
  TestServer server(always({.body = "0123456789"}));
  std::vector<std::byte> place(10);
  HttpRequest request = get(server.url("/a"));
  request.into = std::span(place).first(9);
  const Error error = error_of(transport(), request);
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(error.message().contains("more than the 9 bytes asked for")) << error.message();
  EXPECT_EQ(place.back(), std::byte{0});
}

TEST(CurlFaults, ABodyHasABound) {
  TestServer server(always({.body = std::string(kHttpBodyBytesMax + 1, 'x')}));
  const Error error = error_of(transport(), get(server.url("/a")));
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(error.message().contains("more than 16777216 bytes")) << error.message();
}

TEST(CurlFaults, AHeadHasABound) {
  TestServer server(
      always({.fields = std::vector<HttpField>(300, {"a", std::string(1'000, 'x')})}));
  const Error error = error_of(transport(), get(server.url("/a")));
  EXPECT_EQ(error.code(), ErrorCode::kIo);
}

TEST(CurlFaults, OtherProtocolsAreNoAnswer) {
  for (const char* bytes : {"220 ftp.example ready\r\n", "garbage", "HTTP/9.9 200 OK\r\n\r\n"}) {
    TestServer server(always(
        {.bytes_max = std::string_view(bytes).size(), .end = End::kCloses, .before = bytes}));
    EXPECT_EQ(error_of(transport(), get(server.url("/a"))).code(), ErrorCode::kIo) << bytes;
  }
}

TEST(CurlFaults, SilenceEndsAnExchange) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{20}, kHead.size() + 3}) {
    TestServer server(always({.body = "0123456789", .bytes_max = bytes, .end = End::kFallsSilent}));
    HttpRequest request = get(server.url("/a"));
    request.silence_max = kSoon;
    const auto begin = Monotonic::now();
    const Error error = error_of(transport(), request);
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_TRUE(error.message().contains("no byte in 300ms")) << error.message();
    EXPECT_GE(Monotonic::now() - begin, kSoon);
    EXPECT_LT(Monotonic::now() - begin, kLong);
    EXPECT_TRUE(await([&] { return server.closed_count() == 1; }));
  }
}

TEST(CurlFaults, AServerThatReadsNoBodyIsSilent) {
  std::atomic<bool> is_over = false;
  TestServer server(
      [&](const SeenRequest&) {
        EXPECT_TRUE(await([&] { return is_over.load(); }));
        return ScriptedAnswer{.end = End::kCloses};
      },
      {}, {.body_bytes_max = 0});
  const std::string body(40U << 20U, 'x');
  HttpRequest request = put(server.url("/a"), body);
  request.silence_max = kSoon;
  EXPECT_EQ(error_of(transport(), request).code(), ErrorCode::kTimeout);
  is_over = true;
}

TEST(CurlFaults, ASlowAnswerIsNotSilent) {
  constexpr std::chrono::milliseconds kPause{25};
  constexpr std::chrono::milliseconds kSilence{1'000};
  TestServer server(always({.body = std::string(60, 'x'), .pause = kPause}));
  HttpRequest request = get(server.url("/a"));
  request.silence_max = kSilence;
  const auto begin = Monotonic::now();
  const auto answer = transport()->send(request);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body.size(), 60U);
  EXPECT_GT(Monotonic::now() - begin, kSilence);
}

TEST(CurlFaults, ASlowUploadIsNotSilent) {
  TestServer server(always({}), {}, {.read_pause = std::chrono::milliseconds(25)});
  const std::string body(24U << 20U, 'x');
  HttpRequest request = put(server.url("/a"), body);
  request.silence_max = std::chrono::milliseconds(1'000);
  const auto begin = Monotonic::now();
  const auto answer = transport()->send(request);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_GT(Monotonic::now() - begin, request.silence_max);
}

TEST(CurlFaults, ASlowAnswerMayHaveABound) {
  constexpr std::chrono::milliseconds kPause{25};
  TestServer server(always({.body = std::string(1'000, 'x'), .pause = kPause}));
  HttpRequest request = get(server.url("/a"));
  request.whole_max = kSoon;
  const auto begin = Monotonic::now();
  const Error error = error_of(transport(), request);
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_TRUE(error.message().contains("no whole answer in 300ms")) << error.message();
  EXPECT_GE(Monotonic::now() - begin, kSoon);
  EXPECT_LT(Monotonic::now() - begin, kLong);
}

TEST(CurlFaults, StoppingEndsAnExchangeSoon) {
  TestServer server(always({.bytes_max = 0, .end = End::kFallsSilent}));
  std::atomic<bool> stop = false;
  HttpRequest request = get(server.url("/a"));
  request.stop = &stop;
  Monotonic::time_point stopped;
  std::jthread stopper([&] {
    EXPECT_TRUE(await([&] { return !server.requests().empty(); }));
    stopped = Monotonic::now();
    stop = true;
  });
  EXPECT_EQ(error_of(transport(), request).code(), ErrorCode::kCancelled);
  const auto ended = Monotonic::now();
  stopper.join();
  EXPECT_LT(ended - stopped, kLong / 5);
  EXPECT_TRUE(await([&] { return server.closed_count() == 1; }));
}

TEST(CurlFaults, StoppingEndsAnUpload) {
  std::atomic<bool> stop = false;
  TestServer server(
      [&](const SeenRequest&) {
        stop = true;
        return ScriptedAnswer{.bytes_max = 0, .end = End::kFallsSilent};
      },
      {}, {.body_bytes_max = 1'000'000});
  const std::string body(40U << 20U, 'x');
  HttpRequest request = put(server.url("/a"), body);
  request.stop = &stop;
  EXPECT_EQ(error_of(transport(), request).code(), ErrorCode::kCancelled);
}

TEST(CurlFaults, RefusedConnectionsAreNamed) {
  std::string url;
  {
    const TestServer gone(always({}));
    url = gone.url("/bucket/key");
  }
  const Error error = error_of(transport(), get(url + "?X-Amz-Signature=secret"));
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(error.message().starts_with("GET " + url + ": ")) << error.message();
  EXPECT_TRUE(error.message().contains("Connection refused") ||
              error.message().contains("connect to server"))
      << error.message();
}

// Of ten seconds, which this test waits for.
TEST(CurlFaults, AConnectionHasABound) {
  // A listener with a full queue answers no further connection.
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), any, bytes), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), any, &bytes), 0);
  std::vector<UniqueFd> queued;
  for (int i = 0; i < 4; ++i) {
    queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    std::ignore = ::connect(queued.back().get(), any, bytes);
  }
  HttpRequest request = get("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/a");
  request.silence_max = kLong;
  const Error error = error_of(transport(), request);
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_FALSE(error.message().contains("no byte")) << error.message();
}

TEST(CurlFaults, NamesThatAreNoneAreNamed) {
  const Error error = error_of(transport(), get("http://no-such-host.invalid/a"));
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_TRUE(error.message().contains("no-such-host.invalid")) << error.message();
}

TEST(CurlFaults, AConnectionWithAnErrorIsNotUsedAgain) {
  std::atomic<int> count = 0;
  TestServer server([&](const SeenRequest&) {
    return ScriptedAnswer{.body = std::string(++count == 1 ? 10 : 2, 'x')};
  });
  const auto http = transport();
  std::vector<std::byte> place(5);
  HttpRequest request = get(server.url("/a"));
  request.into = place;
  EXPECT_FALSE(http->send(request));
  EXPECT_TRUE(http->send(request));
  EXPECT_EQ(server.requests().at(1).connection, 1U);
}

TEST(CurlFaults, AfterAServersErrorConnectionsAreNew) {
  std::atomic<int> waiting = 0;
  TestServer server([&](const SeenRequest& seen) {
    if (seen.target == "/both") {
      ++waiting;
      EXPECT_TRUE(await([&] { return waiting >= 2; }));
    }
    return ScriptedAnswer{.status = seen.target == "/503" ? 503 : 499};
  });
  TestServer other_server(always({}));
  const auto http = transport();
  ASSERT_TRUE(http->send(get(other_server.url("/a"))));
  {
    const std::jthread one([&] { EXPECT_TRUE(http->send(get(server.url("/both")))); });
    const std::jthread other([&] { EXPECT_TRUE(http->send(get(server.url("/both")))); });
  }
  EXPECT_EQ(http->send(get(server.url("/503")))->status, 503);
  ASSERT_TRUE(http->send(get(server.url("/499"))));
  ASSERT_TRUE(http->send(get(server.url("/last"))));
  const auto seen = server.requests();
  EXPECT_LE(seen.at(2).connection, 1U);
  EXPECT_EQ(seen.at(3).connection, 2U);
  EXPECT_EQ(seen.at(4).connection, 2U);
  ASSERT_TRUE(http->send(get(other_server.url("/a"))));
  EXPECT_EQ(other_server.requests().at(1).connection, 0U);
}

TEST(CurlFaults, AnIdleConnectionThatEndedIsReplaced) {
  TestServer server(always({.end = End::kCloses}));
  const auto http = transport();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto answer = http->send(put(server.url("/a"), "body"));
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(server.requests().at(i).connection, i);
    EXPECT_TRUE(await([&] { return server.closed_count() == i + 1; }));
  }
}

TEST(CurlFaults, BytesThatNobodyAskedForEndAConnection) {
  // The head tells a length of one byte, and the rest looks like the next answer.
  TestServer liar([](const SeenRequest& seen) {
    ScriptedAnswer answer{.fields = {{"Content-Length", "1"}}, .length = Length::kUntold};
    answer.body = seen.connection == 0 ? "xHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nlie" : "x";
    return answer;
  });
  const auto http = transport();
  EXPECT_EQ(http->send(get(liar.url("/a")))->body, "x");
  EXPECT_EQ(http->send(get(liar.url("/a")))->body, "x");
}

// libcurl sends a request again if a kept connection ends without an answer. The store may have
// carried it out, and the second answer, such as a 412, would be taken for the first one.
TEST(CurlFaults, ARequestIsNeverSentTwice) {
  for (const char* method : {"PUT", "POST", "GET", "DELETE"}) {
    TestServer server([&](const SeenRequest& seen) {
      return seen.target == "/first" ? ScriptedAnswer{}
                                     : ScriptedAnswer{.bytes_max = 0, .end = End::kCloses};
    });
    const auto http = transport();
    ASSERT_TRUE(http->send(put(server.url("/first"), "one")));
    const std::string body = method[0] == 'P' ? "two" : "";
    HttpRequest request = put(server.url("/second"), body);
    request.method = method;
    const Error error = error_of(http, request);
    EXPECT_EQ(error.code(), ErrorCode::kIo) << method;
    EXPECT_TRUE(error.message().contains("ended the connection before its answer"))
        << error.message();
    EXPECT_EQ(server.requests().size(), 2U) << method;
    EXPECT_EQ(server.requests().back().connection, 0U) << method;
  }
}

TEST(CurlFaults, AnAnswerBeforeTheEndOfTheBodyCounts) {
  TestServer server(always({.status = 403, .body = "denied"}), {}, {.body_bytes_max = 1'000'000});
  const std::string body(40U << 20U, 'x');
  const auto http = transport();
  const auto answer = http->send(put(server.url("/a"), body));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 403);
  EXPECT_EQ(answer->body, "denied");
}

TEST(CurlFaults, AServerThatEndsDuringTheBodyIsAnError) {
  TestServer server(always({.bytes_max = 0, .end = End::kCloses}), {},
                    {.body_bytes_max = 1'000'000});
  const std::string body(40U << 20U, 'x');
  EXPECT_EQ(error_of(transport(), put(server.url("/a"), body)).code(), ErrorCode::kIo);
}

TEST(CurlFaults, WhatHttpForbidsIsNotSent) {
  TestServer server(always({}));
  const auto http = transport();
  std::vector<HttpRequest> refused(8, put(server.url("/a"), "secret"));
  refused[0].method = "PUT /a";
  refused[1].method = "";
  refused[2].fields = {{"x-token", "secret\r\nhost: other"}};
  refused[3].fields = {{"x-token\nhost", "secret"}};
  refused[4].fields = {{"x-token", std::string("secret\0", 7)}};
  refused[5].url = "file:///secret";
  refused[6].url = "http://user:secret@127.0.0.1/";
  refused[7].fields = {{"", "secret"}};
  for (const HttpRequest& request : refused) {
    const Error error = error_of(http, request);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.message();
    EXPECT_FALSE(error.message().contains("secret")) << error.message();
  }
  EXPECT_TRUE(server.requests().empty());
}

TEST(CurlFaults, NoMessageHasASecret) {
  const auto told_by = [](const HttpRequest& request) {
    return error_of(transport(), request).message();
  };
  for (const End end : {End::kCloses, End::kFallsSilent}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{20}, std::size_t{50}}) {
      TestServer server(always({.body = "0123456789", .bytes_max = bytes, .end = end}));
      HttpRequest request = put(server.url("/bucket/key?X-Amz-Credential=planted"), "planted");
      request.fields = {{"authorization", "planted"}, {"x-amz-security-token", "planted"}};
      request.silence_max = kSoon;
      const std::string told = told_by(request);
      EXPECT_FALSE(told.contains("planted")) << told;
      EXPECT_TRUE(told.starts_with("PUT " + server.url("/bucket/key: "))) << told;
      request.fields.push_back({"x-other", "planted\n"});
      EXPECT_FALSE(told_by(request).contains("planted"));
    }
  }
}

TEST(CurlFaults, AWriteToAClosedConnectionEndsNoProgram) {
  // The thread that sends, while the server keeps it waiting.
  std::atomic<pid_t> sender = 0;
  std::string blocked;
  TestServer server([&](const SeenRequest&) {
    std::ifstream status("/proc/self/task/" + std::to_string(sender.load()) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) blocked = line.substr(7);
    }
    return ScriptedAnswer{};
  });
  const auto has_pipe = [&] {
    return (std::stoull(blocked, nullptr, 16) >> (SIGPIPE - 1) & 1U) != 0;
  };
  sender = ::gettid();
  const auto http = transport();
  ASSERT_TRUE(http->send(get(server.url("/a"))));
  EXPECT_TRUE(has_pipe());
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(::sigismember(&now, SIGPIPE), 0);
}

}  // namespace
}  // namespace deepfreeze::http_test
