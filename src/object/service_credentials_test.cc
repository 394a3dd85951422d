// Web identity, container, metadata service.
#include <gtest/gtest.h>

#include <fstream>

#include "object/credential_answer.h"
#include "object/credential_places.h"
#include "object/keys_fixture.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;

const Credentials kKeysOfService{.access_key = "AKIDANSWER",
                                 .secret_key = "secret/answer",
                                 .session_token = "token-answer",
                                 .expires = time_at(std::chrono::hours(2))};

class ServiceKeys : public testing::Test {
 protected:
  std::string file(std::string_view text) {
    const auto path = folder_.path() / "token";
    std::ofstream(path) << text;
    return path.string();
  }
  static void expect_code(const auto& result, ErrorCode code) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), code) << result.error().message();
  }

  ScopedDir folder_;
  ScriptedServices services_;
};

class WebIdentityKeys : public ServiceKeys {
 protected:
  Variables variables(std::string_view token = " web.identity-token+/=\n") {
    return {{"AWS_WEB_IDENTITY_TOKEN_FILE", file(token)},
            {"AWS_ROLE_ARN", "arn:aws:iam::1:role/a b"},
            {"AWS_REGION", "eu-central-1"}};
  }
  FoundKeys find(const Variables& variables) {
    return keys_of_web_identity(services_, environment_of(variables));
  }
  static constexpr const char* kSts = "POST https://sts.eu-central-1.amazonaws.com/";
  const std::string answer_ =
      "<R><Credentials><AccessKeyId>AKIDANSWER</AccessKeyId><SecretAccessKey>secret/answer"
      "</SecretAccessKey><SessionToken>token-answer</SessionToken><Expiration>2026-01-01T02:00:00Z"
      "</Expiration></Credentials></R>";
};

TEST_F(WebIdentityKeys, TheTokenIsGivenToStsForKeys) {
  services_.answer(kSts, 200, answer_);
  EXPECT_EQ(find(variables()).value(), kKeysOfService);
  const auto asked = services_.asked();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].body,
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15"
            "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa%20b&RoleSessionName=deepfreeze"
            "&WebIdentityToken=web.identity-token%2B%2F%3D");
  EXPECT_EQ(asked[0].field("content-type"), "application/x-www-form-urlencoded");
  EXPECT_EQ(asked[0].field("authorization"), "");
  EXPECT_EQ(asked[0].silence_max, milliseconds(10'000));
  EXPECT_EQ(asked[0].whole_max, milliseconds(30'000));
}

TEST_F(WebIdentityKeys, SessionAndRegionAreTheUsers) {
  auto with_session = variables();
  with_session["AWS_ROLE_SESSION_NAME"] = "me&you";
  EXPECT_FALSE(find(with_session));
  EXPECT_TRUE(services_.asked().back().body.contains("&RoleSessionName=me%26you&"));
  for (const auto& [region, url] :
       {std::pair("", "https://sts.amazonaws.com/"),
        std::pair("cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn/")}) {
    auto there = variables();
    there["AWS_REGION"] = "";
    there["AWS_DEFAULT_REGION"] = region;
    EXPECT_FALSE(find(there));
    EXPECT_EQ(services_.asked().back().line, std::string("POST ") + url);
  }
}

TEST_F(WebIdentityKeys, ARegionIsNoWayToAnotherServer) {
  for (const char* region : {"evil.org/", "a.b", "A", "a@b", "a b"}) {
    auto there = variables();
    there["AWS_REGION"] = region;
    expect_code(find(there), ErrorCode::kInvalidArgument);
  }
  auto there = variables();
  there["AWS_REGION"] = std::string(65, 'a');
  expect_code(find(there), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(services_.asked().empty());
}

TEST_F(WebIdentityKeys, WithoutTheVariableItIsNotInUse) {
  EXPECT_EQ(find({{"AWS_ROLE_ARN", "role"}}).value(), std::nullopt);
  EXPECT_EQ(find({{"AWS_WEB_IDENTITY_TOKEN_FILE", ""}}).value(), std::nullopt);
}

TEST_F(WebIdentityKeys, WhatIsSetUpWronglyIsAnError) {
  auto no_role = variables();
  no_role.erase("AWS_ROLE_ARN");
  expect_code(find(no_role), ErrorCode::kInvalidArgument);
  auto no_file = variables();
  no_file["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/nowhere/token";
  expect_code(find(no_file), ErrorCode::kInvalidArgument);
  expect_code(find(variables(" \n")), ErrorCode::kInvalidArgument);
  expect_code(find(variables(std::string(kKeyBytesMax + 1, 'a'))), ErrorCode::kInvalidArgument);
  auto folder = variables();
  folder["AWS_WEB_IDENTITY_TOKEN_FILE"] = folder_.path().string();
  expect_code(find(folder), ErrorCode::kInvalidArgument);
}

TEST_F(WebIdentityKeys, RefusalsAreNamedByTheirKnownCode) {
  services_.answer(kSts, 400,
                   "<Error><Code>ExpiredTokenException</Code><Message>T</Message></Error>");
  const auto expired = find(variables());
  expect_code(expired, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(expired.error().message().contains("ExpiredTokenException"));
  services_.answer(kSts, 400, "<Error><Code>IDPCommunicationError</Code></Error>");
  expect_code(find(variables()), ErrorCode::kIo);
  services_.answer(kSts, 400, "<Error><Code>Throttling</Code></Error>");
  expect_code(find(variables()), ErrorCode::kIo);
  services_.answer(kSts, 403, "<Error><Code>Planted</Code></Error>");
  const auto unknown = find(variables());
  expect_code(unknown, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(unknown.error().message().contains("Planted"));
  services_.answer(kSts, 503, "");
  expect_code(find(variables()), ErrorCode::kIo);
  services_.answer(kSts, 302, answer_);
  expect_code(find(variables()), ErrorCode::kInvalidArgument);
}

class ContainerKeys : public ServiceKeys {
 protected:
  FoundKeys find(const Variables& variables) {
    return keys_of_container(services_, environment_of(variables));
  }
  FoundKeys find_at(const std::string& url) {
    return find({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}});
  }
};

TEST_F(ContainerKeys, OfARelativeAddress) {
  services_.answer("GET http://169.254.170.2/v2/keys/planted", 200, keys_json());
  EXPECT_EQ(find({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/keys/planted"},
                  {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.org/"}})
                .value(),
            kKeysOfService);
  const auto asked = services_.asked();
  EXPECT_EQ(asked[0].silence_max, milliseconds(2'000));
  EXPECT_EQ(asked[0].whole_max, milliseconds(10'000));
  EXPECT_EQ(asked[0].fields, (std::vector<HttpField>{{"accept", "application/json"}}));
  EXPECT_EQ(find({}).value(), std::nullopt);
}

TEST_F(ContainerKeys, ARelativeAddressIsAPath) {
  for (const char* path :
       {"keys", ".evil.org/", "@evil.org/", ":80@evil.org/", "/a b", "/a\r\nb"}) {
    expect_code(find({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", path}}),
                ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(services_.asked().empty());
}

TEST_F(ContainerKeys, PlainHttpReachesThisMachineOnly) {
  for (const char* url : {"http://127.0.0.1/", "http://127.9.9.9:80/k?a=b", "http://localhost:1338",
                          "http://[::1]:9/k", "http://[0:0:0:0:0:0:0:1]/k",
                          "http://169.254.170.2/k", "http://169.254.170.23/v1/credentials",
                          "http://[fd00:ec2::23]/v1/credentials", "http://127.0.0.1?a"}) {
    services_.answer(std::string("GET ") + url, 200, keys_json());
    EXPECT_EQ(find_at(url).value(), kKeysOfService) << url;
  }
}

TEST_F(ContainerKeys, HttpsReachesAnyMachine) {
  services_.answer("GET https://keys.example.org/k", 200, keys_json());
  EXPECT_EQ(find_at("https://keys.example.org/k").value(), kKeysOfService);
}

TEST_F(ContainerKeys, OtherAddressesAreRefused) {
  for (const char* url : {"http://example.org/",
                          "http://169.254.169.254/",
                          "http://127.0.0.1.evil.org/",
                          "http://localhost.evil.org/",
                          "http://127.0.0.1@evil.org/",
                          "http://evil.org#@127.0.0.1/",
                          "http://127.0.0.1:80@evil.org/",
                          "http://127.0.0.1\\@evil.org/",
                          "http://127.0.0.1\\.evil.org/",
                          "http://[::1].evil.org/",
                          "http://[::1",
                          "http://[fd00:ec2::24]/",
                          "http://[::ffff:1.2.3.4]/",
                          "http://127.1/",
                          "http://0177.0.0.1/",
                          "http:///k",
                          "http://",
                          "ftp://127.0.0.1/",
                          "127.0.0.1/k",
                          "/k",
                          "HTTP://127.0.0.1/",
                          "http://127.0.0.1/a b",
                          "http://127.0.0.1/\n",
                          "http://127.0.0.1:80:90/",
                          "http://127.0.0.1:x/",
                          "http://[::1]x:80/",
                          "http://x::1]/",
                          "https://user:word@keys.example.org/",
                          "https://keys.example.org\\@evil.org/",
                          "https://keys.example.org/k#f",
                          "http://1.2.3.4/?http://127.0.0.1"}) {
    expect_code(find_at(url), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(services_.asked().empty());
}

TEST_F(ContainerKeys, TheTokenOfTheFileComesFirstAndIsReadEachTime) {
  Variables variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/k"},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic abc"}};
  EXPECT_FALSE(find(variables));
  EXPECT_EQ(services_.asked().back().field("authorization"), "Basic abc");
  variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = file("first\n");
  EXPECT_FALSE(find(variables));
  EXPECT_EQ(services_.asked().back().field("authorization"), "first");
  file("second");
  EXPECT_FALSE(find(variables));
  EXPECT_EQ(services_.asked().back().field("authorization"), "second");
}

TEST_F(ContainerKeys, ATokenThatBreaksOutOfItsFieldIsRefused) {
  for (const char* token : {"a\r\nx: y", "a\nb", "\xc3\xa4", "a\x7f"}) {
    expect_code(find({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/k"},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN", token}}),
                ErrorCode::kInvalidArgument);
  }
  expect_code(find({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/k"},
                    {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nowhere"}}),
              ErrorCode::kInvalidArgument);
  EXPECT_TRUE(services_.asked().empty());
}

TEST_F(ContainerKeys, BadAnswersAreErrors) {
  expect_code(find_at("http://127.0.0.1/k"), ErrorCode::kTimeout);
  for (const auto& [status, code] :
       {std::pair(500, ErrorCode::kIo), std::pair(403, ErrorCode::kInvalidArgument),
        std::pair(204, ErrorCode::kInvalidArgument)}) {
    services_.answer("GET http://127.0.0.1/k", status, keys_json());
    expect_code(find_at("http://127.0.0.1/k"), code);
  }
  services_.answer("GET http://127.0.0.1/k", 200, "{}}");
  expect_code(find_at("http://127.0.0.1/k"), ErrorCode::kIo);
  services_.answer("GET http://127.0.0.1/k", 200, keys_json() + std::string(1U << 20U, ' '));
  expect_code(find_at("http://127.0.0.1/k"), ErrorCode::kIo);
}

class MetadataKeys : public ServiceKeys {
 protected:
  static constexpr const char* kToken = "PUT http://169.254.169.254/latest/api/token";
  static constexpr const char* kRole =
      "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/";

  MetadataKeys() {
    services_.answer(kToken, 200, "session-token");
    services_.answer(kRole, 200, "my.role\nother\n");
    services_.answer(std::string(kRole) + "my.role", 200, keys_json());
  }
  Result<Credentials> find(const Variables& variables = {}) {
    return keys_of_metadata(services_, environment_of(variables));
  }
};

TEST_F(MetadataKeys, ATokenThenTheRoleThenItsKeys) {
  EXPECT_EQ(find().value(), kKeysOfService);
  const auto asked = services_.asked();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].field("x-aws-ec2-metadata-token-ttl-seconds"), "21600");
  for (const auto& each : asked) {
    EXPECT_EQ(each.silence_max, milliseconds(1'000));
    EXPECT_EQ(each.whole_max, milliseconds(5'000));
  }
  EXPECT_EQ(asked[1].field("x-aws-ec2-metadata-token"), "session-token");
  EXPECT_EQ(asked[2].field("x-aws-ec2-metadata-token"), "session-token");
}

TEST_F(MetadataKeys, ItCanBeDisabledOrElsewhere) {
  for (const char* value : {"true", "True", "TRUE"}) {
    expect_code(find({{"AWS_EC2_METADATA_DISABLED", value}}), ErrorCode::kNotFound);
  }
  EXPECT_TRUE(services_.asked().empty());
  EXPECT_TRUE(find({{"AWS_EC2_METADATA_DISABLED", "false"}}));
  expect_code(find({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]//"}}),
              ErrorCode::kNotFound);
  EXPECT_EQ(services_.asked().back().line, "PUT http://[fd00:ec2::254]/latest/api/token");
  for (const char* url : {"169.254.169.254", "file:///etc", "http://a b", "http://a?b",
                          "http://a#b", "http://a@b", "http://a\\b"}) {
    expect_code(find({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", url}}), ErrorCode::kInvalidArgument);
  }
}

TEST_F(MetadataKeys, WithoutATokenThereIsNoService) {
  for (const int status : {403, 404, 500}) {
    services_.answer(kToken, status, "");
    expect_code(find(), ErrorCode::kNotFound);
  }
  for (const std::string& token :
       {std::string(), std::string("a\r\nb"), std::string(kKeyBytesMax + 1, 'a')}) {
    services_.answer(kToken, 200, token);
    expect_code(find(), ErrorCode::kNotFound);
  }
  services_.answer(kToken, [] { return std::unexpected(Error(ErrorCode::kTimeout, "no route")); });
  expect_code(find(), ErrorCode::kNotFound);
  EXPECT_TRUE(find().error().message().contains("no route"));
  EXPECT_EQ(services_.asked().back().line, kToken);  // the first version is never asked
}

TEST_F(MetadataKeys, AMachineWithoutARoleHasNoKeys) {
  services_.answer(kRole, 404, "");
  expect_code(find(), ErrorCode::kNotFound);
}

TEST_F(MetadataKeys, WhatIsNoRoleIsNotAskedFor) {
  for (const std::string& role :
       {std::string(), std::string("\nrole"), std::string("a/b"), std::string("../x"),
        std::string("a?b"), std::string("a b"), std::string("a%2f"), std::string(65, 'a')}) {
    services_.answer(kRole, 200, role);
    expect_code(find(), ErrorCode::kIo);
    EXPECT_EQ(services_.asked().back().line, kRole) << role;
  }
}

TEST_F(MetadataKeys, AFailureInTheMiddleIsWorthAnotherTry) {
  services_.answer(kRole, 503, "");
  expect_code(find(), ErrorCode::kIo);
  services_.answer(kRole, 401, "my.role");
  expect_code(find(), ErrorCode::kInvalidArgument);
  services_.answer(kRole, 200, "silent-role");
  const auto silent = find();
  expect_code(silent, ErrorCode::kTimeout);
  EXPECT_FALSE(silent.error().message().contains("silent-role"));
  services_.answer(kRole, 200, "my.role");
  services_.answer(std::string(kRole) + "my.role", 200, std::string(1U << 20U, '{'));
  expect_code(find(), ErrorCode::kIo);
}

}  // namespace
}  // namespace deepfreeze
