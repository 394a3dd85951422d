#include "object/url_parts.h"

#include <gtest/gtest.h>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

TEST(UrlParts, AreThoseOfTheUrl) {
  const auto parts = split_url("https://store.example:8333/a/b%20c?d=e/f?g");
  ASSERT_TRUE(parts);
  EXPECT_TRUE(parts->is_encrypted);
  EXPECT_EQ(parts->origin, "https://store.example:8333");
  EXPECT_EQ(parts->host, "store.example");
  EXPECT_EQ(parts->path, "/a/b%20c");
  EXPECT_EQ(parts->query, "?d=e/f?g");
}

TEST(UrlParts, MayBeMissing) {
  const auto parts = split_url("http://a");
  ASSERT_TRUE(parts);
  EXPECT_FALSE(parts->is_encrypted);
  EXPECT_EQ(parts->origin, "http://a");
  EXPECT_EQ(parts->host, "a");
  EXPECT_EQ(parts->path, "");
  EXPECT_EQ(parts->query, "");
  const auto query = split_url("http://a?b/c");
  ASSERT_TRUE(query);
  EXPECT_EQ(query->origin, "http://a");
  EXPECT_EQ(query->path, "");
  EXPECT_EQ(query->query, "?b/c");
}

TEST(UrlParts, TakeAddressesInBrackets) {
  const auto parts = split_url("http://[::1]:80/x");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->host, "::1");
  EXPECT_EQ(parts->origin, "http://[::1]:80");
  EXPECT_EQ(split_url("http://[fd00:ec2::254]")->host, "fd00:ec2::254");
}

TEST(UrlParts, OfOtherUrlsAreRefusedWithoutNamingThem) {
  for (const std::string url : {"",
                                "secret",
                                "ftp://secret/",
                                "HTTP://secret/",
                                "file:///secret",
                                "http:/secret",
                                "http://",
                                "http:///secret",
                                "http://:80/secret",
                                "http://secret:/",
                                "http://secret:0/",
                                "http://secret:65536/",
                                "http://secret:1x/",
                                "http://secret:-1/",
                                "http://user:secret@a/",
                                "http://secret@a/",
                                "http://[secret]/",
                                "http://[::1",
                                "http://[::1]secret",
                                "http://[]/",
                                "http://::1/secret",
                                "http://a/secret#b",
                                "http://a/secret b",
                                "http://a/secret\r\nb: c",
                                "http://a/secret\x7f",
                                "http://a/secret\xc3\xa4",
                                "http://secret%41/",
                                "http://a\\secret/"}) {
    const auto parts = split_url(url);
    ASSERT_EQ(code_of(parts), ErrorCode::kInvalidArgument) << url;
    EXPECT_FALSE(parts.error().message().contains("secret")) << parts.error().message();
  }
  EXPECT_EQ(code_of(split_url("http://[::1]8333/")), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(split_url("http://user:pass@a/").error().message().contains("password"));
  EXPECT_TRUE(split_url("http://a:65535/"));
  EXPECT_TRUE(split_url("http://a:1/"));
  EXPECT_TRUE(split_url("http://a/user@secret"));
}

TEST(UrlParts, LoopbackIsThisMachineOnly) {
  for (const char* host :
       {"127.0.0.1", "127.255.255.254", "::1", "0:0:0:0:0:0:0:1", "localhost", "LocalHost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host :
       {"", "128.0.0.1", "126.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "127.0.0.1.example",
        "::2", "::", "::ffff:10.0.0.1", "localhost.example", "xlocalhost"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(UrlParts, MetadataHostsAreThoseOfClouds) {
  for (const char* host :
       {"169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "FD00:EC2::23"}) {
    EXPECT_TRUE(is_metadata(host)) << host;
  }
  EXPECT_FALSE(is_metadata("169.254.169.25"));
  EXPECT_FALSE(is_metadata(""));
}

}  // namespace
}  // namespace deepfreeze
