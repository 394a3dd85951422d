// Which certificates are trusted.
#include <cstdlib>

#include "object/certificate_fixture.h"
#include "object/http_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::http_test {
namespace {

class CurlTls : public testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<HttpTransport> trusting(const TestCertificate& certificate) {
    return transport({.ca_bundle = certificate.certificate_file});
  }

  ScopedDir folder_;
  const TestCertificate certificate_ = make_certificate(folder_.path(), "IP:127.0.0.1");
};

TEST_F(CurlTls, TakesACertificateOfTheBundle) {
  TestServer server(always({.body = "x"}), certificate_);
  const auto http = trusting(certificate_);
  const std::string body(3U << 20U, 'x');
  for (int i = 0; i < 2; ++i) {
    const auto answer = http->send(put(server.url("/a"), body));
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->body, "x");
  }
  EXPECT_TRUE(server.requests().at(1).body == body);
  EXPECT_EQ(server.requests().at(1).connection, 0U);
}

// The server would speak HTTP/2 with a client that offers it.
TEST_F(CurlTls, OffersOnlyTheVersionOfHttpThatIsMeant) {
  TestCertificate certificate = certificate_;
  certificate.wants_http2 = true;
  TestServer server(always({.body = "x"}), certificate);
  const auto answer = trusting(certificate)->send(get(server.url("/a")));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, "x");
}

TEST_F(CurlTls, RefusesACertificateThatNobodyVouchesFor) {
  TestServer server(always({}), certificate_);
  const auto answer = transport()->send(get(server.url("/a")));
  ASSERT_EQ(code_of(answer), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(answer.error().message().contains("certificate")) << answer.error().message();
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(CurlTls, RefusesACertificateOfAnotherHost) {
  const TestCertificate other = make_certificate(folder_.path(), "DNS:store.example");
  TestServer server(always({}), other);
  const auto answer = trusting(other)->send(get(server.url("/a")));
  EXPECT_EQ(code_of(answer), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(CurlTls, NamesABundleThatIsNotThere) {
  TestServer server(always({}), certificate_);
  const auto http = transport({.ca_bundle = "/nowhere/ca.pem"});
  const auto answer = http->send(get(server.url("/a")));
  ASSERT_EQ(code_of(answer), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(answer.error().message().contains("/nowhere/ca.pem")) << answer.error().message();
}

TEST_F(CurlTls, WaitsForNoHandshakeForEver) {
  TestServer plain(always({}));
  HttpRequest request = get("https" + plain.url("/a").substr(4));
  request.silence_max = std::chrono::milliseconds(300);
  EXPECT_EQ(code_of(transport()->send(request)), ErrorCode::kTimeout);
}

TEST_F(CurlTls, SilenceBeginsAfterTheHandshake) {
  constexpr std::chrono::milliseconds kPause{1'200};
  TestServer server(
      [&](const SeenRequest&) {
        std::this_thread::sleep_for(kPause);
        return ScriptedAnswer{};
      },
      certificate_, {.handshake_pause = kPause});
  HttpRequest request = get(server.url("/a"));
  request.silence_max = std::chrono::milliseconds(2'000);
  const auto answer = trusting(certificate_)->send(request);
  EXPECT_TRUE(answer) << answer.error().message();
}

TEST_F(CurlTls, AnAnswerThatIsCutIsNone) {
  TestServer server(
      always({.body = "0123", .length = Length::kChunked, .bytes_max = 60, .end = End::kCloses}),
      certificate_);
  EXPECT_EQ(code_of(trusting(certificate_)->send(get(server.url("/a")))), ErrorCode::kIo);
}

TEST_F(CurlTls, AServerThatEndsDuringTheBodyIsAnError) {
  TestServer server(always({.bytes_max = 0, .end = End::kCloses}), certificate_,
                    {.body_bytes_max = 100'000});
  const std::string body(10U << 20U, 'x');
  EXPECT_EQ(code_of(trusting(certificate_)->send(put(server.url("/a"), body))), ErrorCode::kIo);
}

}  // namespace
}  // namespace deepfreeze::http_test
