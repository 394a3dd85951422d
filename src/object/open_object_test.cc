#include "object/open_object.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

constexpr const char* kUrl = "s3://bucket/runs/a";

class OpenObject : public testing::Test {
 protected:
  // Nothing listens there, and no place has keys.
  OpenObject() {
    for (const auto& [name, value] : variables()) ::setenv(name, value, 1);
    ::unsetenv("AWS_ACCESS_KEY_ID");
    ::unsetenv("AWS_SECRET_ACCESS_KEY");
  }
  ~OpenObject() override {
    for (const auto& [name, value] : variables()) ::unsetenv(name);
  }
  static std::string error_of_list(const char* url) {
    const auto listed = open_vfs(url).value()->list("");
    return listed ? "" : listed.error().message();
  }
  KeySource keys_ = [this]() -> Result<ObjectKeys> {
    ++asked_;
    return std::unexpected(Error(ErrorCode::kInvalidArgument, "no keys today"));
  };
  int asked_ = 0;

 private:
  static std::vector<std::pair<const char*, const char*>> variables() {
    return {{"AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"},
            {"AWS_EC2_METADATA_DISABLED", "true"},
            {"AWS_SHARED_CREDENTIALS_FILE", "/nowhere"},
            {"AWS_CONFIG_FILE", "/nowhere"}};
  }
};

// A restore opens a checkpoint on a tier by its path alone.
TEST_F(OpenObject, ATiersOwnKeysAreUsedWhileItIsOpen) {
  {
    const auto client = open_client(kUrl, {}, keys_).value();
    EXPECT_TRUE(error_of_list(kUrl).contains("no keys today"));
    EXPECT_TRUE(error_of_list("s3://bucket/runs/a/").contains("no keys today"));
    EXPECT_EQ(asked_, 1) << "its error is repeated for a while";
    EXPECT_FALSE(error_of_list("s3://bucket/runs/ab").contains("no keys today"));
    client->stop();
    EXPECT_FALSE(error_of_list(kUrl).contains("no keys today"));
  }
  EXPECT_TRUE(error_of_list(kUrl).contains("there are none"));
}

TEST_F(OpenObject, ATiersOwnServerIsUsedWhileItIsOpen) {
  ::setenv("AWS_ENDPOINT_URL_S3", "ftp://wrong", 1);
  for (const ObjectServer& server :
       {ObjectServer{.endpoint = "http://127.0.0.1:1"}, ObjectServer{.region = "mars-1"}}) {
    if (server.endpoint.empty()) ::unsetenv("AWS_ENDPOINT_URL_S3");
    const auto client = open_client(kUrl, server);
    ASSERT_TRUE(client) << client.error().message();
    ::setenv("AWS_ENDPOINT_URL_S3", "ftp://wrong", 1);
    EXPECT_TRUE(open_vfs(kUrl));
  }
  EXPECT_EQ(code_of(open_vfs(kUrl)), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepfreeze
