// tag, and the tags in ls and show; gc leaves tagged checkpoints.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/test_run.h"
#include "deepfreeze/deepfreeze.h"
#include "restore/run_fixture.h"

namespace deepfreeze::cmd_tag_test {
namespace {

using nlohmann::json;

class TagVerb : public testing::Test {
 protected:
  TagVerb() {
    for (const std::uint64_t step : {1U, 2U, 3U}) {
      FixtureSave save{.step = step, .ranks = {{f32_tensor("w", {1})}}};
      save.annotations.tags = {{"host", "a"}};
      manifests_.push_back(run_.save(save));
    }
  }
  [[nodiscard]] std::string at(const std::string& step) const { return run_.text() + "@" + step; }
  json listed(std::size_t place) {
    return call_json({"ls", run_.text()}).json()["checkpoints"][place];
  }

  RunFixture run_;
  std::vector<Manifest> manifests_;
};

TEST_F(TagVerb, SetsShowsAndRemovesTags) {
  const Answer set = call({"tag", at("2"), "lr=3e-4", "note=the best = of all", "empty="});
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_EQ(set.out, "empty=\nlr=3e-4\nnote=the best = of all\n");
  const json one = call_json({"tag", at("2")}).json();
  EXPECT_EQ(one["checkpoint"]["step"], 2);
  EXPECT_EQ(one["given"], (json{{"lr", "3e-4"}, {"note", "the best = of all"}, {"empty", ""}}));
  EXPECT_EQ(one["tags"]["host"], "a");
  EXPECT_EQ(call({"tag", at("2"), "--remove", "note", "lr=1", "--remove", "empty"}).out, "lr=1\n");
  EXPECT_EQ(call({"tag", at("2"), "--remove", "lr"}).out, at("2") + " has no tags of its own\n");
  EXPECT_EQ(call({"tag", at("latest"), "a=b"}).code, 0);
  EXPECT_EQ(listed(0)["given_tags"], (json{{"a", "b"}}));
}

TEST_F(TagVerb, TheyAreListedAndShown) {
  ASSERT_EQ(call({"tag", at("2"), "host=b", "who=\x1b[2J"}).code, 0);
  EXPECT_EQ(listed(1)["tags"], (json{{"host", "b"}, {"who", "\x1b[2J"}}));
  EXPECT_EQ(listed(0)["tags"], (json{{"host", "a"}})) << "of the save";
  EXPECT_EQ(listed(0)["given_tags"], json::object());
  const Answer table = call({"ls", run_.text()});
  EXPECT_TRUE(table.says("host=b, who=\\x1b[2J")) << table.out;
  const Answer shown = call({"show", at("2")});
  EXPECT_TRUE(shown.says("tag host = b\n")) << shown.out;
  EXPECT_EQ(call_json({"show", at("2")}).json()["tags"]["host"], "b");
  EXPECT_EQ(call_json({"show", at("1")}).json()["tags"]["host"], "a");
  const auto infos = list_checkpoints(run_.path());
  EXPECT_EQ((*infos)[1].tags.at("host"), "b") << "and a program sees them";
}

TEST_F(TagVerb, GcLeavesATaggedCheckpoint) {
  ASSERT_EQ(call({"tag", at("1"), "keep=me"}).code, 0);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1"}).code, 0);
  const json list = call_json({"ls", run_.text()}).json()["checkpoints"];
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1]["step"], 1);
  ASSERT_EQ(call({"tag", at("1"), "--remove", "keep"}).code, 0);
  EXPECT_EQ(call({"gc", run_.text(), "--keep-last", "1"}).code, 0);
  EXPECT_EQ(call_json({"ls", run_.text()}).json()["checkpoints"].size(), 1U);
}

TEST_F(TagVerb, BadArgumentsChangeNothing) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"a=1", "a=2"},
                                             {"a"},
                                             {"=1"},
                                             {"a b=1"},
                                             {"a=1", "--remove", "a"},
                                             {"--remove", "a", "--remove", "a"},
                                             {fmt::format("a={}", std::string(5000, 'x'))}}) {
    std::vector<std::string> line{"tag", at("2")};
    line.insert(line.end(), words.begin(), words.end());
    EXPECT_EQ(call(line).code, 2) << fmt::format("{}", words[0]);
  }
  const Answer whole = call({"tag", run_.text(), "a=1"});
  EXPECT_EQ(whole.code, 2);
  EXPECT_NE(whole.err.find("RUN@STEP"), std::string::npos) << whole.err;
  EXPECT_EQ(call({"tag", at("2"), "--remove", "host"}).code, 3) << "it is of the save";
  EXPECT_EQ(call({"tag", at("9"), "a=1"}).code, 3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(listed(i)["given_tags"], json::object());
}

TEST_F(TagVerb, DamagedTagsAreToldByAllVerbs) {
  ASSERT_EQ(call({"tag", at("2"), "a=b"}).code, 0);
  flip_bit(run_.file_path(manifests_[1], "tags-00000001.json"), 8 * 60);
  const Answer table = call({"ls", run_.text()});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(table.says("tags not known")) << table.out;
  EXPECT_TRUE(listed(1).contains("tags_fault"));
  EXPECT_EQ(call({"tag", at("2")}).code, 3);
  EXPECT_EQ(call({"tag", at("2"), "c=d"}).code, 3);
  const Answer doctor = call({"doctor", run_.text()});
  EXPECT_EQ(doctor.code, 1);
  EXPECT_TRUE(doctor.says("tags")) << doctor.out;
  EXPECT_EQ(call({"verify", run_.text()}).code, 0) << "its data is whole";
}

TEST_F(TagVerb, TaggedIsNoFindingOfDoctorOrVerify) {
  ASSERT_EQ(call({"tag", at("2"), "a=b"}).code, 0);
  EXPECT_EQ(call_json({"doctor", run_.text()}).json()["findings"], json::array());
  const json verified = call_json({"verify", "--deep", run_.text()}).json();
  EXPECT_EQ(verified.dump().find("tags-"), std::string::npos) << verified;
}

}  // namespace
}  // namespace deepfreeze::cmd_tag_test
