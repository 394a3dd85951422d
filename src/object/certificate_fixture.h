// Certificates signed by themselves, made by OpenSSL's program.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "object/test_server.h"
#include "support/scoped_dir.h"

namespace deepfreeze::http_test {

// For `name`: "IP:127.0.0.1", "DNS:store.example".
inline TestCertificate make_certificate(const std::filesystem::path& folder,
                                        std::string_view name) {
  const std::string file = (folder / fmt::format("{}.pem", name)).string();
  const TestCertificate made{.certificate_file = file, .key_file = file + ".key"};
  const std::string command = fmt::format(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test "
      "-addext subjectAltName={} -keyout {} -out {} 2>{}.log",
      name, made.key_file, made.certificate_file, file);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return made;
}

}  // namespace deepfreeze::http_test
