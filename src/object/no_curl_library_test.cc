// Machines without libcurl, with another library under its name, or with an old one; and the end of
// a program that has used it. Each case has its own process, because the library is looked for
// once.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <tuple>

#include "object/certificate_fixture.h"
#include "object/http_fixture.h"

namespace deepfreeze::http_test {
namespace {

// Ends the process: 0 if the error says that object stores are not supported, and why.
[[noreturn]] void look_for_curl(const char* library) {
  ::setenv("DEEPFREEZE_CURL_LIBRARY", library, 1);
  const auto made = make_curl_transport({});
  if (!made) std::cerr << made.error().message();
  std::_Exit(!made && made.error().code() == ErrorCode::kUnsupported ? 0 : 1);
}

TEST(NoCurlLibraryDeathTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_EXIT(look_for_curl("/nowhere/libcurl.so"), testing::ExitedWithCode(0),
              "need libcurl 7.68 or newer .*/nowhere/libcurl.so");
}

TEST(NoCurlLibraryDeathTest, AnotherLibraryIsNone) {
  EXPECT_EXIT(look_for_curl("libm.so.6"), testing::ExitedWithCode(0),
              "another one, or too old.*curl_version_info");
}

TEST(NoCurlLibraryDeathTest, AnOldOneIsRefused) {
  EXPECT_EXIT(look_for_curl(DF_OLD_CURL), testing::ExitedWithCode(0),
              "need libcurl 7.68 or newer .*this one is 7.67.0");
}

TEST(NoCurlLibraryDeathTest, AnEmptyNameIsNone) {
  EXPECT_EXIT(
      {
        ::setenv("DEEPFREEZE_CURL_LIBRARY", "", 1);
        std::_Exit(make_curl_transport({}) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// The URL of a server with TLS in a process of its own, which ends with this one: here OpenSSL is
// used by libcurl alone.
std::string url_of_other_process(const TestCertificate& certificate) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return "";
  if (::fork() == 0) {
    ::close(ends[0]);
    {
      const TestServer server(always({.body = "x"}), certificate);
      const std::string url = server.url("/a");
      char byte = 0;
      std::ignore = ::send(ends[1], url.data(), url.size(), 0);
      std::ignore = ::recv(ends[1], &byte, 1, 0);
    }
    std::_Exit(0);
  }
  ::close(ends[1]);
  std::string url(100, '\0');
  const auto bytes = ::recv(ends[0], url.data(), url.size(), 0);
  url.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return url;
}

// The end of the test's process: its handlers run after those that the library would have added.
std::string late_url;
std::string late_bundle;
void exchange_late() {
  const auto answer = transport({.ca_bundle = late_bundle})->send(get(late_url));
  if (!answer) std::cerr << answer.error().message();
  std::_Exit(answer && answer->body == "x" ? 0 : 1);
}

TEST(NoCurlLibraryDeathTest, AThreadMayUseTlsWhileTheProgramEnds) {
  const ScopedDir folder;
  const TestCertificate certificate = make_certificate(folder.path(), "IP:127.0.0.1");
  EXPECT_EXIT(
      {
        late_url = url_of_other_process(certificate);
        late_bundle = certificate.certificate_file;
        std::atexit(exchange_late);
        std::exit(transport() ? 3 : 2);
      },
      testing::ExitedWithCode(0), "");
}

// Also on a machine whose OpenSSL allows it.
TEST(NoCurlLibraryDeathTest, AnOldVersionOfTlsIsRefused) {
  const ScopedDir folder;
  TestCertificate certificate = make_certificate(folder.path(), "IP:127.0.0.1");
  certificate.is_old = true;
  const auto configuration = folder.path() / "openssl.cnf";
  std::ofstream(configuration) << "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\n"
                                  "system_default = weak\n[weak]\nMinProtocol = TLSv1\n"
                                  "CipherString = ALL:@SECLEVEL=0\n";
  EXPECT_EXIT(
      {
        ::setenv("OPENSSL_CONF", configuration.c_str(), 1);
        const std::string url = url_of_other_process(certificate);
        const auto answer = transport({.ca_bundle = certificate.certificate_file})->send(get(url));
        if (!answer) std::cerr << answer.error().message();
        std::_Exit(answer ? 1 : 0);
      },
      testing::ExitedWithCode(0), "protocol version");
}

}  // namespace
}  // namespace deepfreeze::http_test
