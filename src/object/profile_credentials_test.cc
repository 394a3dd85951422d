#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "object/credential_places.h"
#include "object/keys_fixture.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

class ProfileKeys : public testing::Test {
 protected:
  ProfileKeys() { std::filesystem::create_directory(home_.path() / ".aws"); }

  std::string file(const std::string& name, std::string_view text) {
    const auto path = home_.path() / ".aws" / name;
    std::ofstream(path) << text;
    return path.string();
  }
  FoundKeys find(Variables variables = {}) {
    variables.try_emplace("HOME", home_.path().string());
    return keys_of_profile(services_, environment_of(std::move(variables)));
  }
  static void expect_error(const FoundKeys& found, std::string_view words) {
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(found.error().message().contains(words)) << found.error().message();
    EXPECT_FALSE(found.error().message().contains("planted")) << found.error().message();
  }

  ScopedDir home_;
  ScriptedServices services_;
};

const Credentials kOne{.access_key = "AKONE", .secret_key = "one"};
const Credentials kTwo{.access_key = "AKTWO", .secret_key = "two", .session_token = "t"};
constexpr std::string_view kTwoProfiles =
    "[default]\naws_access_key_id=AKONE\naws_secret_access_key=one\n"
    "[two]\naws_access_key_id=AKTWO\naws_secret_access_key=two\naws_session_token=t\n";

TEST_F(ProfileKeys, WithoutFilesThereAreNone) {
  EXPECT_EQ(find().value(), std::nullopt);
  EXPECT_EQ(find({{"HOME", ""}}).value(), std::nullopt);
  EXPECT_EQ(find({{"AWS_CONFIG_FILE", "/dev/null"}}).value(), std::nullopt);
  file("credentials", "[two]\naws_access_key_id=AKTWO\naws_secret_access_key=two\n");
  EXPECT_EQ(find().value(), std::nullopt);
}

TEST_F(ProfileKeys, TheDefaultOneAndTheOneThatIsNamed) {
  file("credentials", kTwoProfiles);
  EXPECT_EQ(find().value(), kOne);
  EXPECT_EQ(find({{"AWS_PROFILE", ""}}).value(), kOne);
  EXPECT_EQ(find({{"AWS_PROFILE", "two"}}).value(), kTwo);
}

TEST_F(ProfileKeys, AProfileThatIsNamedMustHaveKeys) {
  file("credentials", kTwoProfiles);
  file("config", "[profile three]\nregion = x\n");
  for (const char* name : {"three", "four", "profile three"}) {
    expect_error(find({{"AWS_PROFILE", name}}), ".aws/credentials");
    expect_error(find({{"AWS_PROFILE", name}}), name);
  }
}

TEST_F(ProfileKeys, OtherFilesMayBeNamed) {
  const std::string path = file("mine", kTwoProfiles);
  EXPECT_EQ(find({{"AWS_SHARED_CREDENTIALS_FILE", path}}).value(), kOne);
  EXPECT_EQ(find({{"AWS_SHARED_CREDENTIALS_FILE", "~/.aws/mine"}}).value(), kOne);
  file("config2",
       "[profile two]\naws_access_key_id=AKTWO\naws_secret_access_key=two\n"
       "aws_session_token=t");
  EXPECT_EQ(find({{"AWS_CONFIG_FILE", "~/.aws/config2"}, {"AWS_PROFILE", "two"}}).value(), kTwo);
}

TEST_F(ProfileKeys, TheCredentialsFileComesFirstAndKeysAreNeverMixed) {
  file("credentials", "[default]\naws_access_key_id=AKONE\naws_secret_access_key=one\n");
  file("config",
       "[default]\naws_access_key_id=AKTWO\naws_secret_access_key=two\n"
       "aws_session_token=t\n");
  EXPECT_EQ(find().value(), kOne);
  file("credentials", "[default]\naws_access_key_id=AKONE\n");
  expect_error(find(), "only one of");
  file("credentials", "[default]\naws_secret_access_key=planted\n");
  expect_error(find(), "only one of");
  file("credentials", "[default]\n");
  EXPECT_EQ(find().value(), kTwo);
}

TEST_F(ProfileKeys, WhatWeDoNotDoIsSaidWithTheWayOut) {
  for (const char* name :
       {"role_arn", "sso_session", "sso_start_url", "sso_account_id", "sso_role_name",
        "login_session", "source_profile", "credential_source"}) {
    file("config", std::string("[default]\n") + name +
                       " = planted\n"
                       "credential_process = echo planted\n");
    expect_error(find(), name);
    expect_error(find(), "a Python callable can give them (credentials=)");
  }
  // Keys that another tool keeps in the file are those of the profile, unless it has another
  // source.
  file("credentials", "[default]\naws_access_key_id=AKONE\naws_secret_access_key=one\n");
  file("config", "[default]\nsso_session = x\n");
  EXPECT_EQ(find().value(), kOne);
  file("config", "[default]\nrole_arn = x\nsource_profile = default\n");
  expect_error(find(), "source_profile");
  file("config", "[default]\nsource_profile =\n");  // says nothing
  EXPECT_EQ(find().value(), kOne);
}

TEST_F(ProfileKeys, AWebIdentity) {
  const std::string token = file("token", "the-token");
  file("config", "[default]\nrole_arn = role\nweb_identity_token_file = " + token +
                     "\nrole_session_name = me\n");
  services_.answer("POST https://sts.amazonaws.com/", 200,
                   "<Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
                   "<SessionToken>t</SessionToken><Expiration>2026-01-01T02:00:00Z</Expiration>"
                   "</Credentials>");
  EXPECT_EQ(find().value()->access_key, "AK");
  EXPECT_TRUE(services_.asked().back().body.ends_with(
      "&RoleArn=role&RoleSessionName=me&WebIdentityToken=the-token"));
}

TEST_F(ProfileKeys, ACredentialProcess) {
  const std::string keys = file("keys", keys_json("SessionToken"));
  file("config", "[default]\ncredential_process = cat \"" + keys + "\"\n");
  const auto found = find();
  EXPECT_EQ(found.value()->secret_key, "secret/answer");
  EXPECT_EQ(found.value()->expires, time_at(std::chrono::hours(2)));
}

TEST_F(ProfileKeys, ACredentialProcessThatFailsIsAnError) {
  for (const std::string command : {"false planted", "echo planted", "/no/such/planted"}) {
    file("config", "[default]\ncredential_process = " + command + "\n");
    const auto found = find();
    ASSERT_FALSE(found);
    EXPECT_TRUE(found.error().message().starts_with("\"default\": credential_process: "));
    EXPECT_FALSE(found.error().message().contains("planted"));
  }
}

TEST_F(ProfileKeys, FilesThatAreNoneAndTooLongOnesAreRefused) {
  file("credentials", "[default]\n#" + std::string(1U << 20U, 'x'));
  expect_error(find(), "more than 1048576 bytes");
  file("credentials", "");
  std::filesystem::create_directory(home_.path() / ".aws" / "config");
  expect_error(find(), ".aws/config: it is not a file");
  expect_error(find({{"AWS_CONFIG_FILE", "/dev/zero"}}), "more than 1048576 bytes");
  const auto pipe = home_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(find({{"AWS_CONFIG_FILE", pipe.string()}}), "it is not a file");  // does not wait
}

TEST_F(ProfileKeys, AHomeOfAnotherUserCountsAsNone) {
  // Root may read every file, but a path below a file is refused to all users.
  const std::string path = file("credentials", kTwoProfiles);
  EXPECT_EQ(find({{"HOME", path}}).value(), std::nullopt);
}

}  // namespace
}  // namespace deepfreeze
