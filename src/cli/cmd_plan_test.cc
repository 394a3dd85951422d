// deepfreeze plan.
#include <gtest/gtest.h>

#include "cli/test_run.h"
#include "protect/loss_odds.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

json scheme_of(const json& document, const std::string& name) {
  for (const json& scheme : document["schemes"]) {
    if (scheme["name"] == name) return scheme;
  }
  ADD_FAILURE() << "no " << name << " in " << document;
  return {};
}

TEST(Plan, TellsOfEachScheme) {
  const Answer answer = call_json({"plan", "--nodes", "1024", "--mtbf", "5y", "--flush", "10m"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json found = answer.json();
  EXPECT_EQ(found["flush_seconds"], 600);
  EXPECT_EQ(found["time_seconds"], 30 * 86'400);
  EXPECT_DOUBLE_EQ(found["mtbf_seconds"], 5 * 365.25 * 86'400);
  const json parity = scheme_of(found, "df.parity(6, 2)");
  EXPECT_EQ(parity["groups"], std::vector<int>(128, 8));
  EXPECT_DOUBLE_EQ(parity["extra_bytes"], 2.0 / 6);
  EXPECT_EQ(parity["bytes_read"], 2);
  const std::vector<std::size_t> groups(128, 8);
  EXPECT_DOUBLE_EQ(parity["lost_at_once"][2]["probability"], loss_of_many(groups, 2, 4));
  EXPECT_EQ(parity["lost_at_once"][1]["probability"], 0);
  EXPECT_DOUBLE_EQ(parity["lost_over_time"],
                   loss_over_time(groups, 2, found["mtbf_seconds"], 600, 30 * 86'400));
  EXPECT_DOUBLE_EQ(scheme_of(found, "df.partner()")["extra_bytes"], 1);
  EXPECT_EQ(scheme_of(found, "no parity")["lost_at_once"][0]["probability"], 1);
}

TEST(Plan, TellsThemToPeople) {
  const Answer answer = call({"plan", "--nodes", "64", "--cost", "2s"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(answer.says("df.partner()           1.00x     1x       0  1.59 %")) << answer.out;
  EXPECT_TRUE(answer.says("df.parity(6, 2)        0.33x     2x       0       0")) << answer.out;
  // 5 years of 64 nodes: 684.8 h; sqrt(2 x 2 s x 684.8 h).
  EXPECT_TRUE(answer.says("some node fails every 684.8 h; if a save costs 2s, save every 52 min"))
      << answer.out;
}

TEST(Plan, SchemesThatNeedMoreNodesAreLeftOut) {
  const Answer answer = call_json({"plan", "--nodes", "2"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  std::vector<std::string> names;
  const json document = answer.json();
  for (const json& scheme : document["schemes"]) names.push_back(scheme["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"no parity", "df.partner()", "df.parity(7, 1)"}));
}

TEST(Plan, OneMoreSchemeIsTheUsers) {
  const Answer answer = call_json({"plan", "--nodes", "9", "--data", "2", "--parity", "1"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(scheme_of(answer.json(), "df.parity(2, 1)")["groups"], (std::vector<int>{3, 3, 3}));
}

TEST(Plan, SaysWhatIsWrong) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const Answer answer = call(words);
    EXPECT_EQ(answer.code, 2) << answer.out;
    return answer.err;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal({"plan"}), "--nodes"));
  for (const char* text : {"10", "m", "-1s", "0s", "1w", "5y ", "1e400s", ""}) {
    EXPECT_TRUE(has(refusal({"plan", "--nodes", "8", "--flush", text}), "not a time such as"))
        << text;
  }
  EXPECT_TRUE(has(refusal({"plan", "--nodes", "3", "--data", "1", "--parity", "3"}),
                  "more nodes than parity"));
  EXPECT_TRUE(has(refusal({"plan", "--nodes", "3", "--data", "1"}), "both must be 1"));
}

}  // namespace
}  // namespace deepfreeze
