// The chain of places, and the secrets that it never tells.
#include "object/credentials.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/log.h"
#include "object/keys_fixture.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

using std::chrono::minutes;

constexpr const char* kSts = "POST https://sts.amazonaws.com/";
constexpr const char* kContainer = "GET http://169.254.170.2/planted-path";
constexpr const char* kImdsToken = "PUT http://169.254.169.254/latest/api/token";
constexpr const char* kImdsRole =
    "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/";

std::string sts_keys(std::string_view access_key) {
  return "<Credentials><AccessKeyId>" + std::string(access_key) +
         "</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
         "<Expiration>2026-01-01T02:00:00Z</Expiration></Credentials>";
}

std::string json_keys(std::string_view access_key) {
  return R"({"AccessKeyId":")" + std::string(access_key) +
         R"(","SecretAccessKey":"s","Token":"t","Expiration":"2026-01-01T02:00:00Z"})";
}

class Chain : public testing::Test {
 protected:
  Chain() {
    std::filesystem::create_directory(home_.path() / ".aws");
    set_log_sink([this](std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  ~Chain() override { set_log_sink({}); }

  std::string file(const std::string& name, std::string_view text) {
    const auto path = home_.path() / name;
    std::ofstream(path) << text;
    return path.string();
  }
  // All places have keys.
  Variables all() {
    services_->answer(kSts, 200, sts_keys("AKSTS"));
    file(".aws/credentials", "[default]\naws_access_key_id=AKFILE\naws_secret_access_key=s\n");
    services_->answer(kContainer, 200, json_keys("AKCONTAINER"));
    services_->answer(kImdsToken, 200, "planted-imds");
    services_->answer(kImdsRole, 200, "role");
    services_->answer(std::string(kImdsRole) + "role", 200, json_keys("AKIMDS"));
    return {{"AWS_ACCESS_KEY_ID", "AKENV"},
            {"AWS_SECRET_ACCESS_KEY", "planted-secret"},
            {"AWS_SESSION_TOKEN", "planted-session"},
            {"AWS_WEB_IDENTITY_TOKEN_FILE", file("token", "planted-identity")},
            {"AWS_ROLE_ARN", "role"},
            {"HOME", home_.path().string()},
            {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/planted-path"},
            {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "planted-authorization"}};
  }
  std::unique_ptr<CredentialSource> source(const Variables& variables) {
    return find_credentials(services_, environment_of(variables), [this] { return now_; });
  }
  std::string access_key(const Variables& variables) {
    const auto keys = source(variables)->get();
    return keys ? keys->access_key.text() : keys.error().message();
  }

  ScopedDir home_;
  std::shared_ptr<ScriptedServices> services_ = std::make_shared<ScriptedServices>();
  std::chrono::system_clock::time_point now_ = time_at(std::chrono::seconds(0));
  std::string log_;
};

TEST_F(Chain, ThePlacesHaveTheOrderOfTheSdks) {
  Variables variables = all();
  EXPECT_EQ(access_key(variables), "AKENV");
  variables.erase("AWS_ACCESS_KEY_ID");
  variables.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_EQ(access_key(variables), "AKSTS");
  variables.erase("AWS_WEB_IDENTITY_TOKEN_FILE");
  EXPECT_EQ(access_key(variables), "AKFILE");
  variables.erase("HOME");
  EXPECT_EQ(access_key(variables), "AKCONTAINER");
  variables.erase("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  EXPECT_EQ(access_key(variables), "AKIMDS");
}

TEST_F(Chain, KeysOfTheEnvironment) {
  const auto keys = source(all())->get();
  EXPECT_EQ(keys.value(), (Credentials{.access_key = "AKENV",
                                       .secret_key = "planted-secret",
                                       .session_token = "planted-session"}));
  EXPECT_TRUE(services_->asked().empty());
}

TEST_F(Chain, HalfOfTheEnvironmentsKeysIsAnError) {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) {
    Variables variables = all();
    variables[name] = "";
    const auto keys = source(variables)->get();
    ASSERT_FALSE(keys);
    EXPECT_EQ(keys.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_FALSE(keys.error().message().contains("planted"));
  }
}

TEST_F(Chain, APlaceThatIsInUseAndFailsIsNotPassedOver) {
  Variables variables = all();
  variables.erase("AWS_ACCESS_KEY_ID");
  variables.erase("AWS_SECRET_ACCESS_KEY");
  services_->answer(kSts, 503, "");
  EXPECT_EQ(access_key(variables),
            "keys for the object store: the web identity: it answered with status 503");
  variables.erase("AWS_WEB_IDENTITY_TOKEN_FILE");
  variables["AWS_PROFILE"] = "none";
  EXPECT_TRUE(
      access_key(variables).starts_with("keys for the object store: the profile: \"none\""));
  variables.erase("HOME");
  variables.erase("AWS_PROFILE");
  services_->answer(kContainer, 403, "");
  EXPECT_EQ(access_key(variables),
            "keys for the object store: the container's address: it answered with status 403");
}

TEST_F(Chain, WithoutAnyKeysTheErrorListsThePlaces) {
  const auto keys = source({{"HOME", home_.path().string()}})->get();
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code(), ErrorCode::kInvalidArgument);
  for (const char* place :
       {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "profile \"default\"",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "metadata service", "Connection timed out"}) {
    EXPECT_TRUE(keys.error().message().contains(place)) << keys.error().message();
  }
}

TEST_F(Chain, AMetadataServiceThatIsSilentLaterIsAnErrorThatPasses) {
  std::ignore = all();
  const auto machine = source({});
  ASSERT_TRUE(machine->get());
  services_->answer(kImdsToken,
                    [] { return std::unexpected(Error(ErrorCode::kTimeout, "silent")); });
  now_ += minutes(116);
  EXPECT_EQ(machine->get()->access_key, "AKIMDS");
  EXPECT_TRUE(log_.contains("silent"));
  now_ += minutes(4);
  const auto keys = machine->get();
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code(), ErrorCode::kIo);
}

TEST_F(Chain, AMetadataServiceThatFailsInTheMiddleIsAnErrorThatPasses) {
  std::ignore = all();
  services_->answer(kImdsRole, 503, "");
  const auto keys = source({})->get();
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code(), ErrorCode::kIo);
}

TEST_F(Chain, TheProcessesEnvironment) {
  const Environment environment = process_environment();
  ::setenv("DF_VARIABLE_OF_THE_TEST", "value", 1);
  EXPECT_EQ(environment("DF_VARIABLE_OF_THE_TEST"), "value");
  ::unsetenv("DF_VARIABLE_OF_THE_TEST");
  EXPECT_EQ(environment("DF_VARIABLE_OF_THE_TEST"), std::nullopt);
}

// Every secret has "planted" in it. Each service answers with a status, an answer that repeats the
// question and is of no form, or not at all; each place fails in its turn.
class NoSecretIsTold : public Chain {
 protected:
  void fail_and_look(const Variables& variables) {
    const auto keys = source(variables)->get();
    ASSERT_FALSE(keys);
    EXPECT_FALSE(keys.error().message().contains("planted")) << keys.error().message();
    EXPECT_FALSE(log_.contains("planted")) << log_;
    ++failures_;
  }
  // `line` answers in every bad way.
  void fail_at(const std::string& line, const Variables& variables) {
    const std::string echo =
        "<Code>planted</Code>{\"AccessKeyId\": \"planted\", \"planted\": planted}"
        "\r\nplanted";
    for (const int status : {200, 204, 302, 400, 403, 404, 429, 500}) {
      services_->answer(line, status, echo);
      fail_and_look(variables);
    }
    services_->answer(line, 200, std::string(kHttpBodyBytesMax, 'x') + "planted");
    fail_and_look(variables);
    services_->answer(line, [] { return std::unexpected(Error(ErrorCode::kIo, "reset")); });
    fail_and_look(variables);
  }
  // ... and with keys that can be none.
  void fail_with_keys_at(const std::string& line, const Variables& variables) {
    fail_at(line, variables);
    for (const char* planted : {"planted key", "planted\\nkey", "planted\\u0000"}) {
      services_->answer(line, 200, json_keys(planted));
      fail_and_look(variables);
    }
    for (const char* planted : {"planted key", "planted\nkey"}) {
      services_->answer(line, 200, sts_keys(planted));
      fail_and_look(variables);
    }
  }
  int failures_ = 0;
};

TEST_F(NoSecretIsTold, ByServices) {
  Variables variables = all();
  variables.erase("AWS_ACCESS_KEY_ID");
  variables.erase("AWS_SECRET_ACCESS_KEY");
  fail_with_keys_at(kSts, variables);
  variables.erase("AWS_WEB_IDENTITY_TOKEN_FILE");
  variables.erase("HOME");
  fail_with_keys_at(kContainer, variables);
  variables.erase("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  fail_with_keys_at(std::string(kImdsRole) + "role", variables);
  fail_at(kImdsRole, variables);
  fail_at(kImdsToken, variables);
  EXPECT_EQ(failures_, 5 * 10 + 3 * 5);
}

TEST_F(NoSecretIsTold, ByTheContainersTransport) {
  Variables variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/planted?planted"}};
  fail_and_look(variables);  // its message names the URL
  variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://planted.org/planted";
  fail_and_look(variables);
  variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "planted\n";
  fail_and_look(variables);
}

TEST_F(NoSecretIsTold, ByVariables) {
  fail_and_look({{"AWS_ACCESS_KEY_ID", "planted"}});
  fail_and_look({{"AWS_SECRET_ACCESS_KEY", "planted"}});
  for (const char* bad : {"planted key", "planted\nkey", "planted\xff"}) {
    fail_and_look({{"AWS_ACCESS_KEY_ID", bad}, {"AWS_SECRET_ACCESS_KEY", "planted"}});
    fail_and_look({{"AWS_ACCESS_KEY_ID", "planted"}, {"AWS_SECRET_ACCESS_KEY", bad}});
  }
  fail_and_look({{"AWS_WEB_IDENTITY_TOKEN_FILE", file("token", "planted")},
                 {"AWS_ROLE_ARN", "role"},
                 {"AWS_REGION", "planted.org/"}});
  fail_and_look({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://user:planted@host"}});
}

TEST_F(NoSecretIsTold, ByProfiles) {
  const Variables variables{{"HOME", home_.path().string()}, {"AWS_PROFILE", "default"}};
  for (const char* text :
       {"aws_access_key_id = planted", "aws_secret_access_key = planted",
        "aws_access_key_id = planted key\naws_secret_access_key = planted",
        "aws_access_key_id = planted\naws_secret_access_key = planted # comment", "planted",
        "role_arn = planted", "sso_session = planted", "source_profile = planted",
        "credential_process = planted", "credential_process = 'planted",
        "credential_process = sh -c \"echo planted; echo planted >&2\"",
        "credential_process = sh -c \"echo planted; echo planted >&2; exit 1\" planted",
        "credential_process = printf '{\"Version\":1,\"AccessKeyId\":\"planted\"}'",
        "credential_process = printf '{\"Version\":\"planted\"}'",
        "role_arn = planted\nweb_identity_token_file = /nowhere"}) {
    file(".aws/config", std::string("[default]\n") + text + "\n");
    fail_and_look(variables);
  }
}

}  // namespace
}  // namespace deepfreeze
