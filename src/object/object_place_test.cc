#include "object/object_place.h"

#include <gtest/gtest.h>

#include <map>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

using Variables = std::map<std::string, std::string>;

Result<ObjectPlace> place_of(std::string_view url, const Variables& variables = {},
                             const ObjectServer& server = {}) {
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return parse_object_url(url, environment, server);
}

// The message of the refusal.
std::string refusal_of(std::string_view url, const Variables& variables = {}) {
  const auto place = place_of(url, variables);
  EXPECT_EQ(code_of(place), ErrorCode::kInvalidArgument) << url;
  return place ? "" : place.error().message();
}

TEST(ObjectPlace, OfAnUrl) {
  EXPECT_TRUE(is_object_url("s3://b"));
  EXPECT_FALSE(is_object_url("S3://b"));
  EXPECT_FALSE(is_object_url("/s3://b"));
  const auto place = place_of("s3://bucket-1/runs/nt3");
  ASSERT_TRUE(place) << place.error().message();
  EXPECT_EQ(place->bucket, "bucket-1");
  EXPECT_EQ(place->prefix, "runs/nt3");
  EXPECT_EQ(place->url(), "s3://bucket-1/runs/nt3");
  EXPECT_EQ(place->region, "us-east-1");
  EXPECT_EQ(place->endpoint, "https://s3.us-east-1.amazonaws.com");
  EXPECT_FALSE(place->path_style);
  EXPECT_EQ(place->ca_bundle, "");
}

TEST(ObjectPlace, MayBeAWholeBucket) {
  for (const char* url : {"s3://bucket", "s3://bucket/"}) {
    const auto place = place_of(url);
    ASSERT_TRUE(place) << url;
    EXPECT_EQ(place->prefix, "");
    EXPECT_EQ(place->url(), "s3://bucket");
  }
  EXPECT_EQ(place_of("s3://bucket/a/")->prefix, "a");
}

TEST(ObjectPlace, HasABucketsNameOfS3) {
  for (const std::string& name : {std::string("abc"), std::string("1a2"), std::string("a.b-c"),
                                  std::string("a-.b"), std::string(63, 'a'), std::string("1.2.3"),
                                  std::string("1.2.3.400"), std::string("1.2.3.4.5")}) {
    EXPECT_TRUE(place_of("s3://" + name)) << name;
  }
  const std::map<std::string, std::string> refused = {{"", "no bucket"},
                                                      {"ab", "3 to 63"},
                                                      {std::string(64, 'a'), "3 to 63"},
                                                      {"-ab", "begins and ends"},
                                                      {".ab", "begins and ends"},
                                                      {"ab-", "begins and ends"},
                                                      {"ab.", "begins and ends"},
                                                      {"a..b", "\"..\""},
                                                      {"1.2.3.4", "address"},
                                                      {"127.0.0.1", "address"},
                                                      {"Abc", "\"A\" is not allowed"},
                                                      {"a_b", "\"_\" is not allowed"},
                                                      {"a%62c", "\"%\" is not allowed"},
                                                      {"abc?x", "\"?\" is not allowed"},
                                                      {"a\xc3\xa4"
                                                       "c",
                                                       "\"\xc3\xa4\" is not allowed"},
                                                      {"a\nc", "\"\\x0a\" is not allowed"}};
  for (const auto& [name, why] : refused) {
    const std::string refusal = refusal_of("s3://" + name + "/a");
    EXPECT_TRUE(refusal.contains(why)) << refusal;
  }
  EXPECT_TRUE(refusal_of("bucket/a").contains("s3://"));
}

TEST(ObjectPlace, HasAPrefixOfNamesOfFiles) {
  EXPECT_TRUE(place_of("s3://bucket/aZ09._=+@,-/..a/a../.b"));
  const std::map<std::string, std::string> refused = {
      {"/", "\"\" is no part"},
      {"/a", "\"\" is no part"},
      {"a//b", "\"\" is no part"},
      {"a//", "\"\" is no part"},
      {".", "\".\" is no part"},
      {"..", "\"..\" is no part"},
      {"a/../b", "\"..\" is no part"},
      {"a/.", "\".\" is no part"},
      {"a b", "\" \" is not allowed"},
      {"a%20b", "\"%\""},
      {"a?b", "\"?\""},
      {"a#b", "\"#\""},
      {"a\\b", "\"\\\""},
      {"a*", "\"*\""},
      {"a:b", "\":\""},
      {"a\xe2\x82\xac/b", "\"\xe2\x82\xac\" is not allowed"},
      {std::string("a\0b", 3), "\"\\x00\""},
      {std::string(513, 'a'), "more than 512"}};
  for (const auto& [prefix, why] : refused) {
    const std::string refusal = refusal_of("s3://bucket/" + prefix);
    EXPECT_TRUE(refusal.contains(why)) << refusal;
  }
  EXPECT_TRUE(place_of("s3://bucket/" + std::string(512, 'a')));
}

TEST(ObjectPlace, HasNoKeysInIt) {
  const std::string refusal = refusal_of("s3://access:secret@bucket/a");
  EXPECT_FALSE(refusal.contains("secret")) << refusal;
  EXPECT_TRUE(refusal.contains("AWS_ACCESS_KEY_ID")) << refusal;
}

TEST(ObjectPlace, IsInARegion) {
  EXPECT_EQ(place_of("s3://bucket", {{"AWS_REGION", "eu-central-1"}, {"AWS_DEFAULT_REGION", "x"}})
                ->endpoint,
            "https://s3.eu-central-1.amazonaws.com");
  const auto fallback =
      place_of("s3://bucket", {{"AWS_REGION", ""}, {"AWS_DEFAULT_REGION", "cn-north-1"}});
  ASSERT_TRUE(fallback);
  EXPECT_EQ(fallback->region, "cn-north-1");
  EXPECT_EQ(fallback->endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
  EXPECT_TRUE(refusal_of("s3://bucket", {{"AWS_REGION", "a/b"}}).contains("\"/\""));
  EXPECT_TRUE(
      refusal_of("s3://bucket", {{"AWS_REGION", std::string(64, 'a')}}).contains("too long"));
}

TEST(ObjectPlace, IsAtTheEndpointOfTheEnvironment) {
  const auto place = place_of("s3://bucket/a", {{"AWS_ENDPOINT_URL_S3", "https://store:9000/base/"},
                                                {"AWS_ENDPOINT_URL", "https://other"},
                                                {"AWS_CA_BUNDLE", "/etc/ca.pem"}});
  ASSERT_TRUE(place) << place.error().message();
  EXPECT_EQ(place->endpoint, "https://store:9000/base");
  EXPECT_TRUE(place->path_style);
  EXPECT_EQ(place->ca_bundle, "/etc/ca.pem");
  EXPECT_EQ(
      place_of("s3://bucket", {{"AWS_ENDPOINT_URL_S3", ""}, {"AWS_ENDPOINT_URL", "https://other"}})
          ->endpoint,
      "https://other");
}

TEST(ObjectPlace, IsAtItsOwnServerWhateverTheEnvironmentSays) {
  const Variables variables = {{"AWS_ENDPOINT_URL_S3", "https://other"}, {"AWS_REGION", "mars-2"}};
  const auto place =
      place_of("s3://bucket", variables, {.endpoint = "https://store:9000/", .region = "mars-1"});
  ASSERT_TRUE(place) << place.error().message();
  EXPECT_EQ(place->endpoint, "https://store:9000");
  EXPECT_EQ(place->region, "mars-1");
  EXPECT_TRUE(place->path_style);
  EXPECT_EQ(place_of("s3://bucket", variables, {.endpoint = "https://store"})->region, "mars-2");
  EXPECT_EQ(place_of("s3://bucket", variables, {.region = "mars-1"})->endpoint, "https://other");
  EXPECT_EQ(code_of(place_of("s3://bucket", {}, {.endpoint = "http://10.0.0.1:8333"})),
            ErrorCode::kInvalidArgument);
}

// An agent is told the place that a program found, and makes the same requests.
TEST(ObjectPlace, IsTheSameIfItsServerIsNamedAgain) {
  for (const auto& [url, variables] : std::vector<std::pair<std::string, Variables>>{
           {"s3://bucket", {}},
           {"s3://with.dot/a", {{"AWS_REGION", "cn-north-1"}}},
           {"s3://bucket/a", {{"AWS_ENDPOINT_URL_S3", "https://store:9000/base/"}}}}) {
    const ObjectPlace found = place_of(url, variables).value();
    const Variables others = {{"AWS_ENDPOINT_URL_S3", "https://other"}, {"AWS_REGION", "mars-2"}};
    const auto again =
        place_of(url, others, {.endpoint = found.endpoint, .region = found.region}).value();
    EXPECT_EQ(again.request_url("key"), found.request_url("key"));
    EXPECT_EQ(again.region, found.region);
  }
}

TEST(ObjectPlace, HasAnEndpointThatIsOne) {
  for (const char* endpoint :
       {"store", "ftp://store", "https://", "https://store:x", "https://user:secret@store",
        "https://store?secret", "https://store/secret#a", "https://store/a:secret",
        "https://store/ secret"}) {
    const std::string refusal = refusal_of("s3://bucket", {{"AWS_ENDPOINT_URL_S3", endpoint}});
    EXPECT_TRUE(refusal.starts_with("endpoint, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: "))
        << refusal;
    EXPECT_FALSE(refusal.contains("secret")) << refusal;
  }
}

TEST(ObjectPlace, IsReachedWithoutTlsOnlyOnThisMachine) {
  for (const char* endpoint : {"http://127.0.0.1:8333", "http://[::1]:8333", "http://localhost"}) {
    EXPECT_TRUE(place_of("s3://bucket", {{"AWS_ENDPOINT_URL", endpoint}})) << endpoint;
  }
  Variables variables = {{"AWS_ENDPOINT_URL", "http://10.0.0.1:8333"}};
  for (const char* allowed : {"", "0", "yes"}) {
    variables["DEEPFREEZE_ALLOW_HTTP"] = allowed;
    const std::string refusal = refusal_of("s3://bucket", variables);
    EXPECT_TRUE(refusal.contains("10.0.0.1 is another machine")) << refusal;
  }
  variables["DEEPFREEZE_ALLOW_HTTP"] = "1";
  EXPECT_TRUE(place_of("s3://bucket", variables));
}

TEST(ObjectPlace, MakesUrlsInVirtualHostStyle) {
  const ObjectPlace place = place_of("s3://bucket/a").value();
  const std::string host = "https://bucket.s3.us-east-1.amazonaws.com";
  EXPECT_EQ(place.request_url("b/c d", "partNumber=1"), host + "/a/b/c%20d?partNumber=1");
  EXPECT_EQ(place.request_url("b"), host + "/a/b");
  EXPECT_EQ(place.request_url("", "list-type=2"), host + "/?list-type=2");
  EXPECT_EQ(place.request_url(""), host + "/");
  EXPECT_EQ(place_of("s3://bucket")->request_url("b"), host + "/b");
}

TEST(ObjectPlace, MakesUrlsInPathStyle) {
  const auto at = [](std::string_view url) {
    return place_of(url, {{"AWS_ENDPOINT_URL", "http://127.0.0.1:8333"}}).value();
  };
  EXPECT_EQ(at("s3://bucket/a=1").request_url("b/c"), "http://127.0.0.1:8333/bucket/a%3D1/b/c");
  EXPECT_EQ(at("s3://bucket").request_url("b", "c=d"), "http://127.0.0.1:8333/bucket/b?c=d");
  EXPECT_EQ(at("s3://bucket/a").request_url("", "c=d"), "http://127.0.0.1:8333/bucket?c=d");
  EXPECT_EQ(place_of("s3://with.dot/a")->request_url("b"),
            "https://s3.us-east-1.amazonaws.com/with.dot/a/b");
}

}  // namespace
}  // namespace deepfreeze
