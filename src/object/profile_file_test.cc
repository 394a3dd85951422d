#include "object/profile_file.h"

#include <gtest/gtest.h>

namespace deepfreeze {
namespace {

constexpr std::string_view kCredentialsText =
    "[default]\n"
    "aws_access_key_id = AKID\r\n"
    "AWS_Secret_Access_Key=a=b=\n"
    "# a comment = none\n"
    "; another = none\n"
    "[profile other]\n"
    "aws_access_key_id = WRONG\n"
    "[ other ]  # words behind\n"
    "aws_access_key_id = FIRST\n"
    "aws_access_key_id = LAST\n"
    "no setting\n"
    "= nothing\n";

constexpr std::string_view kConfigText =
    "region = of nobody\n"
    "[other]\nwrong = 1\n"
    "[profileother]\nwrong = 1\n"
    "[sso-session other]\nwrong = 1\n"
    "[profile other]\n"
    "region = eu-1\n"
    "s3 =\n"
    "  max_queue_size = 7\n"
    "\n"
    "output = json\n"
    "  credential_process = nested\n"
    "[profile \"two words\"]\n"
    "  region = indented\n"
    "  output = too\n"
    "[default]\nregion = one\n[profile default]\noutput = two\n[unclosed\nregion = last";

std::string setting(std::string_view text, ProfileFile file, std::string_view profile,
                    std::string_view name) {
  const ProfileSettings settings = settings_of_profile(text, file, profile);
  const auto found = settings.find(name);
  return found == settings.end() ? "none" : found->second.text();
}

TEST(ProfileFileTest, CredentialsFile) {
  const auto file = ProfileFile::kCredentials;
  EXPECT_EQ(setting(kCredentialsText, file, "default", "aws_access_key_id"), "AKID");
  EXPECT_EQ(setting(kCredentialsText, file, "default", "aws_secret_access_key"), "a=b=");
  EXPECT_EQ(settings_of_profile(kCredentialsText, file, "default").size(), 2U);
  EXPECT_EQ(setting(kCredentialsText, file, "other", "aws_access_key_id"), "LAST");
  EXPECT_EQ(settings_of_profile(kCredentialsText, file, "other").size(), 1U);
  EXPECT_EQ(setting(kCredentialsText, file, "profile other", "aws_access_key_id"), "WRONG");
  EXPECT_TRUE(settings_of_profile(kCredentialsText, file, "third").empty());
}

TEST(ProfileFileTest, ConfigFile) {
  const auto file = ProfileFile::kConfig;
  EXPECT_EQ(setting(kConfigText, file, "other", "region"), "eu-1");
  EXPECT_EQ(setting(kConfigText, file, "other", "s3"), "");
  EXPECT_EQ(setting(kConfigText, file, "other", "output"), "json");
  EXPECT_EQ(settings_of_profile(kConfigText, file, "other").size(), 3U);  // nothing nested
  EXPECT_EQ(setting(kConfigText, file, "two words", "region"), "indented");
  EXPECT_EQ(setting(kConfigText, file, "two words", "output"), "too");
  EXPECT_EQ(setting(kConfigText, file, "default", "output"), "two");
  EXPECT_EQ(setting(kConfigText, file, "default", "region"), "last");  // "[unclosed" is no section
}

TEST(ProfileFileTest, WhateverIsWrittenThereIsRead) {
  for (const std::string_view text :
       {"", "\n", "[", "]", "[]", "[]\n=", "[\"]\na=b", "[profile]\na=b", "[profile ]\na=b",
        "[profile \"]\na=b", "=", " = ", "\t", "[default", "\xff\xfe[default]"}) {
    for (const ProfileFile file : {ProfileFile::kCredentials, ProfileFile::kConfig}) {
      EXPECT_TRUE(settings_of_profile(text, file, "default").empty()) << text;
    }
  }
  EXPECT_EQ(
      setting(std::string_view("[default]\na=x\0y\n", 15), ProfileFile::kConfig, "default", "a"),
      std::string("x\0y", 3));
}

}  // namespace
}  // namespace deepfreeze
