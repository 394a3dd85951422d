#include "object/credential_answer.h"

#include <gtest/gtest.h>

#include "object/keys_fixture.h"

namespace deepfreeze {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

std::string sts_answer(std::string_view expires = "2026-01-01T02:00:00Z") {
  return R"(<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>s</SubjectFromWebIdentityToken>
  <Credentials><SessionToken>token-answer</SessionToken>
  <SecretAccessKey>secret/answer</SecretAccessKey><Expiration>)" +
         std::string(expires) + R"(</Expiration><AccessKeyId>AKIDANSWER</AccessKeyId></Credentials>
  </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>)";
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

const Credentials kAnswered{.access_key = "AKIDANSWER",
                            .secret_key = "secret/answer",
                            .session_token = "token-answer",
                            .expires = time_at(hours(2))};

void expect_refused(const Result<Credentials>& keys) {
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code(), ErrorCode::kIo);
  EXPECT_FALSE(keys.error().message().contains("answer/")) << keys.error().message();
}

TEST(CredentialAnswer, JsonOfAServiceAndOfAProgram) {
  EXPECT_EQ(parse_keys_json(keys_json(), KeysFrom::kService).value(), kAnswered);
  EXPECT_EQ(parse_keys_json(keys_json("SessionToken"), KeysFrom::kProgram).value(), kAnswered);
  // The other's name of the token is not ours.
  EXPECT_EQ(parse_keys_json(keys_json(), KeysFrom::kProgram)->session_token, "");
}

TEST(CredentialAnswer, JsonMayLackTokenAndEndAndHaveMore) {
  const auto keys = parse_keys_json(
      R"({"AccessKeyId":"a","SecretAccessKey":"s\/1","Token":null,"LastUpdated":[{"x":1}]})",
      KeysFrom::kService);
  EXPECT_EQ(keys.value(), (Credentials{.access_key = "a", .secret_key = "s/1"}));
}

TEST(CredentialAnswer, ServiceAndProgramIgnoreTheOthersMembers) {
  EXPECT_TRUE(parse_keys_json(
      R"({"Version":"2012","AccessKeyId":"a","SecretAccessKey":"s","SessionToken":7})",
      KeysFrom::kService));
  EXPECT_TRUE(parse_keys_json(
      R"({"Version":1,"Code":"x","AccessKeyId":"a","SecretAccessKey":"s","Token":7})",
      KeysFrom::kProgram));
}

TEST(CredentialAnswer, JsonOfAnotherFormIsRefused) {
  const std::string good = keys_json();
  expect_refused(parse_keys_json("", KeysFrom::kService));
  expect_refused(parse_keys_json("<html>", KeysFrom::kService));
  expect_refused(parse_keys_json("[]", KeysFrom::kService));
  expect_refused(parse_keys_json(good + "x", KeysFrom::kService));
  expect_refused(parse_keys_json(replaced(good, "\"AKIDANSWER\"", "17"), KeysFrom::kService));
  expect_refused(parse_keys_json(replaced(good, "\"AKIDANSWER\"", "[\"a\"]"), KeysFrom::kService));
  expect_refused(parse_keys_json(replaced(good, "Z\"", "\""), KeysFrom::kService));
  expect_refused(parse_keys_json(replaced(good, "Success", "Failed"), KeysFrom::kService));
  expect_refused(
      parse_keys_json(replaced(good, "\"Code\"", "\"AccessKeyId\""), KeysFrom::kService));
  expect_refused(parse_keys_json(good.substr(0, good.size() - 1), KeysFrom::kService));
  expect_refused(parse_keys_json(R"({"a":)" + std::string(50'000, '['), KeysFrom::kService));
}

TEST(CredentialAnswer, AProgramMustSayItsVersion) {
  const std::string good = keys_json("SessionToken");
  expect_refused(parse_keys_json(replaced(good, "\"Version\": 1, ", ""), KeysFrom::kProgram));
  expect_refused(parse_keys_json(replaced(good, ": 1,", ": 2,"), KeysFrom::kProgram));
  expect_refused(parse_keys_json(replaced(good, ": 1,", ": \"1\","), KeysFrom::kProgram));
}

TEST(CredentialAnswer, XmlOfSts) { EXPECT_EQ(parse_keys_xml(sts_answer()).value(), kAnswered); }

TEST(CredentialAnswer, XmlOfAnotherFormIsRefused) {
  const std::string good = sts_answer();
  expect_refused(parse_keys_xml(""));
  expect_refused(parse_keys_xml("<ErrorResponse><Error><Code>X</Code></Error></ErrorResponse>"));
  for (const std::string name :
       {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration", "Credentials"}) {
    expect_refused(parse_keys_xml(replaced(good, "<" + name + ">", "<Other>")));
    expect_refused(parse_keys_xml(replaced(good, "</" + name + ">", "</Other>")));
    expect_refused(parse_keys_xml(
        replaced(good, "</" + name + ">", "</" + name + "><" + name + ">x</" + name + ">")));
  }
  expect_refused(parse_keys_xml(replaced(good, "AKIDANSWER", "")));
  expect_refused(parse_keys_xml(replaced(good, "AKIDANSWER", "a&amp;b")));
  expect_refused(parse_keys_xml(replaced(good, "AKIDANSWER", "<![CDATA[a]]>")));
  expect_refused(parse_keys_xml(sts_answer("soon")));
}

TEST(CredentialAnswer, KeysThatBreakOutOfAFieldAreRefused) {
  EXPECT_TRUE(check_keys({.access_key = "!", .secret_key = "~"}));
  const std::string long_key(kKeyBytesMax + 1, 'k');
  EXPECT_TRUE(check_keys({.access_key = "a", .secret_key = long_key.substr(1)}));
  for (const std::string& bad : {std::string("a b"), std::string("a\r\nhost: evil"),
                                 std::string("\x7f"), std::string("\xc3\xa4"), long_key}) {
    const Status first = check_keys({.access_key = bad, .secret_key = "s"});
    const Status second = check_keys({.access_key = "a", .secret_key = bad});
    const Status third = check_keys({.access_key = "a", .secret_key = "s", .session_token = bad});
    for (const Status& status : {first, second, third}) {
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    }
  }
  EXPECT_FALSE(check_keys({.access_key = "a", .secret_key = ""}));
  EXPECT_FALSE(check_keys({.access_key = "", .secret_key = "s"}));
}

TEST(CredentialAnswer, RefusalsThatMayPassAreKIo) {
  for (const int status : {429, 500, 503})
    EXPECT_EQ(service_refusal(status).error().code(), ErrorCode::kIo);
  for (const int status : {204, 301, 400, 403, 404}) {
    EXPECT_EQ(service_refusal(status).error().code(), ErrorCode::kInvalidArgument) << status;
  }
}

TEST(CredentialAnswer, AServicesAnswerIsBounded) {
  ScriptedServices services;
  services.answer("GET http://s/fits", 200, std::string(kKeysAnswerBytesMax, 'a'));
  services.answer("GET http://s/long", 200, std::string(kKeysAnswerBytesMax + 1, 'a'));
  services.answer("GET http://s/error", 500, "words");
  const auto fits = ask_service(services, {.method = "GET", .url = "http://s/fits"});
  EXPECT_EQ(fits->body.text().size(), kKeysAnswerBytesMax);
  EXPECT_FALSE(ask_service(services, {.method = "GET", .url = "http://s/long"}));
  const auto error = ask_service(services, {.method = "GET", .url = "http://s/error"});
  EXPECT_EQ(error->status, 500);
  EXPECT_EQ(error->body, "words");
}

}  // namespace
}  // namespace deepfreeze
