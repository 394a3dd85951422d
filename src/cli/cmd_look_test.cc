// ls, show, log, and the answers of all verbs to bad input.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <limits>

#include "cli/test_run.h"
#include "deepfreeze/deepfreeze.h"
#include "format/sealed_fixture.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

constexpr const char* kTree =
    R"({"epoch":3,"lr":0.5,"model":{"w":{"$":"tensor","k":"model.w"}},"name":"run \u001b[2J"})";

FixtureSave one_rank(std::uint64_t step, const std::vector<float>& values) {
  FixtureSave save{.step = step, .ranks = {{f32_tensor("model.w", values)}}, .tree = kTree};
  save.ranks[0].push_back(random_tensor("model.b", DType::kI32, {2, 3}, step));
  save.annotations.wall_micros = 1'795'251'130'000'000;
  save.annotations.metrics = {{"loss", 0.25}};
  return save;
}

void expect_json(const Answer& answer, std::string_view command) {
  const json document = answer.json();
  ASSERT_FALSE(document.is_discarded()) << answer.out << answer.err;
  EXPECT_EQ(document["format"], 1);
  EXPECT_EQ(document["command"], command);
}

TEST(Ls, ListsNewestFirstWithFlags) {
  RunFixture run;
  const Manifest first = run.save(one_rank(100, {1}));
  run.save(one_rank(150, {2}));
  run.claim(first.point);  // so that 150 is abandoned
  run.save(one_rank(101, {3}));
  run.write_undecided(one_rank(102, {4}));
  const Answer answer = call_json({"ls", run.text()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  expect_json(answer, "ls");
  const json list = answer.json()["checkpoints"];
  ASSERT_EQ(list.size(), 4U);
  const auto line = [&](std::size_t i) {
    return std::pair<int, std::string>(list[i]["step"], list[i]["flag"]);
  };
  EXPECT_EQ(line(0), std::pair(101, std::string("newest")));
  EXPECT_EQ(line(1), std::pair(150, std::string("abandoned")));
  EXPECT_EQ(line(2), std::pair(100, std::string("")));
  EXPECT_EQ(line(3), std::pair(102, std::string("undecided")));
  EXPECT_EQ(list[0]["generation"], 2);
  EXPECT_EQ(list[0]["metrics"]["loss"], 0.25);
  const Answer table = call({"ls", run.text()});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(table.says("2026-11-21 08:52:10 UTC"));
  EXPECT_TRUE(table.says("  loss  ")) << table.out;
  EXPECT_TRUE(table.says("  0.25  ")) << table.out;
}

TEST(Ls, ShowsAFaultyManifestAndItsCause) {
  RunFixture run;
  const Manifest manifest = run.save(one_rank(7, {1}));
  flip_bit(run.file_path(manifest, "manifest.json"), 8 * 40);
  const Answer answer = call({"ls", run.text()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(answer.says("fault")) << answer.out;
  EXPECT_TRUE(answer.says("manifest.json")) << answer.out;
}

TEST(Ls, EmptyRunHasNoCheckpoints) {
  RunFixture run;
  EXPECT_EQ(call({"ls", run.text()}).out, "no checkpoints\n");
  EXPECT_EQ(call_json({"ls", run.text()}).json()["checkpoints"], json::array());
}

TEST(Show, ListsTensorsAndObjectsOfTheNewestOrAStep) {
  RunFixture run;
  run.save(one_rank(1, {1, 2}));
  run.save(one_rank(2, {1, 2, 3}));
  const Answer newest = call_json({"show", run.text()});
  EXPECT_EQ(newest.code, 0) << newest.err;
  expect_json(newest, "show");
  const json document = newest.json();
  EXPECT_EQ(document["checkpoint"]["step"], 2);
  ASSERT_EQ(document["tensors"].size(), 2U);
  EXPECT_EQ(document["tensors"][0]["key"], "model.b");
  EXPECT_EQ(document["tensors"][0]["shape"], json({2, 3}));
  EXPECT_EQ(document["tensors"][1]["bytes"], 12);
  EXPECT_EQ(document["objects"][0], (json{{"path", "epoch"}, {"kind", "int"}, {"value", "3"}}));
  EXPECT_EQ(document["objects"].size(), 3U);
  EXPECT_EQ(call_json({"show", run.text() + "@1"}).json()["checkpoint"]["step"], 1);
  EXPECT_EQ(call_json({"show", run.text() + "@latest"}).json(), document);

  const Answer table = call({"show", run.text()});
  EXPECT_TRUE(table.says("model.b")) << table.out;
  EXPECT_TRUE(table.says("run \\x1b[2J")) << "escapes reach no terminal";
}

TEST(Show, GivesStatisticsOfATensorByKeyOrPath) {
  RunFixture run;
  run.save(one_rank(5, {-1, 0, 3, 3}));
  const Answer answer = call_json({"show", run.text(), "model.w"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  const json statistics = answer.json()["statistics"];
  EXPECT_EQ(statistics["count"], 4);
  EXPECT_EQ(statistics["min"], -1);
  EXPECT_EQ(statistics["max"], 3);
  EXPECT_EQ(statistics["mean"], 1.25);
  EXPECT_EQ(statistics["zero"], 1);
  EXPECT_EQ(statistics["histogram"].size(), 20U);
  EXPECT_EQ(statistics["histogram"][19], 2);
  const Answer table = call({"show", run.text(), "model.w"});
  EXPECT_TRUE(table.says("████")) << table.out;
  EXPECT_TRUE(table.says("F32  [4]  4 elements")) << table.out;
}

TEST(Show, HasTheRangesOfACheckpointThatStoresThem) {
  RunFixture run;
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 4> values = {1.5F, kNaN, -2.0F, kNaN};
  const std::array<std::int32_t, 1> count = {3};
  auto checkpointer = Checkpointer::open(run.path(), {.statistics = true});
  const auto handle =
      checkpointer->save({.step = 9,
                          .tensors = {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {4}},
                                       .data = std::as_bytes(std::span(values))},
                                      {.spec = {.key = "n", .dtype = DType::kI32, .shape = {1}},
                                       .data = std::as_bytes(std::span(count))}}});
  ASSERT_TRUE((*handle)->wait(Level::kDurable, std::chrono::minutes(1)).has_value());
  const json tensors = call_json({"show", run.text()}).json()["tensors"];
  EXPECT_FALSE(tensors[0].contains("non_finite")) << "whole numbers have no range";
  EXPECT_EQ(tensors[1]["min"], -2);
  EXPECT_EQ(tensors[1]["max"], 1.5);
  EXPECT_EQ(tensors[1]["non_finite"], 2);
  const Answer table = call({"show", run.text()});
  EXPECT_TRUE(table.says("NAN OR INF")) << table.out;
  EXPECT_EQ(call_json({"ls", run.text()}).json()["checkpoints"][0]["non_finite"], 2);
  EXPECT_TRUE(call({"ls", run.text()}).says("newest, not finite"));
}

TEST(Show, FollowsAPathOfTheTreeToItsTensor) {
  RunFixture run;
  FixtureSave save = one_rank(5, {1, 2});
  save.tree = R"({"tied":{"$":"tensor","k":"model.w"}})";
  run.save(save);
  EXPECT_EQ(call_json({"show", run.text(), "tied"}).json()["tensor"]["key"], "model.w");
}

TEST(Show, GivesAnObjectByItsPath) {
  RunFixture run;
  run.save(one_rank(5, {1}));
  const Answer answer = call_json({"show", run.text(), "lr"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["object"]["value"], "0.5");
  EXPECT_EQ(call({"show", run.text(), "lr"}).out, "lr  float  0.5\n");
}

TEST(Show, CorruptTensorIsAFailureThatNamesIt) {
  RunFixture run;
  const Manifest manifest = run.save(one_rank(5, {1}));
  flip_bit(run.file_path(manifest, manifest.files[0].name), manifest.files[0].bytes * 8 - 1);
  const Answer answer = call_json({"show", run.text(), "model.w"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.json()["error"]["code"], "corrupt");
  EXPECT_NE(answer.err.find("model.w"), std::string::npos) << answer.err;
}

TEST(Log, DrawsGenerationsAndTheirSteps) {
  RunFixture run;
  const Manifest first = run.save(one_rank(50, {1}));
  run.save(one_rank(60, {1}));
  run.claim(first.point);
  run.save(one_rank(55, {1}));
  run.claim(first.point);
  run.save(one_rank(51, {1}));
  const Answer answer = call({"log", run.text()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(
      answer.says("generation 1, from scratch: steps 50, 60 (abandoned)\n"
                  "`-- generation 2, from step 50 of generation 1: steps 55 (abandoned)\n"
                  "generation 3, from step 50 of generation 1: steps 51\n"))
      << answer.out;
  const json generations = call_json({"log", run.text()}).json()["generations"];
  ASSERT_EQ(generations.size(), 3U);
  EXPECT_EQ(generations[0]["resumed_from"], nullptr);
  EXPECT_EQ(generations[2]["resumed_from"]["step"], 50);
  EXPECT_EQ(generations[2]["steps"][0]["abandoned"], false);
}

TEST(Log, FollowsParentsAndSaysWhereTheChainEnds) {
  RunFixture root(ParentPoint{.run = "/nonexistent/run", .step = 1});
  RunFixture branch(ParentPoint{.run = root.text(), .step = 9});
  const Answer answer = call_json({"log", branch.text()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  const json parents = answer.json()["parents"];
  ASSERT_EQ(parents.size(), 2U);
  EXPECT_EQ(parents[0]["run"], root.text());
  EXPECT_EQ(parents[0]["step"], 9);
  EXPECT_TRUE(parents[0].contains("id"));
  EXPECT_TRUE(parents[1].contains("cause"));
  EXPECT_TRUE(call({"log", branch.text()}).says("branched from " + root.text() + " step 9"));
}

TEST(Usage, HelpIsGoodAndNonsenseIsNot) {
  EXPECT_EQ(call({"--help"}).code, 0);
  EXPECT_EQ(call({"--version"}).code, 0);
  EXPECT_EQ(call({}).code, 2);
  EXPECT_EQ(call({"thaw", "run"}).code, 2);
  EXPECT_EQ(call({"ls"}).code, 2);
  EXPECT_EQ(call({"ls", "run", "--fast"}).code, 2);
  for (const std::string verb : {"ls", "show", "log", "diff", "verify", "gc", "export"}) {
    const Answer help = call({verb, "--help"});
    EXPECT_EQ(help.code, 0) << verb;
    EXPECT_TRUE(help.says("--json: {")) << verb;
  }
}

TEST(Usage, AVerbThatIsNotThereIsNamedWithTheNearest) {
  const auto told = [](const std::string& word) {
    const Answer answer = call({word, "run"});
    EXPECT_EQ(answer.code, 2) << word;
    EXPECT_EQ(answer.out, "");
    return answer.err;
  };
  EXPECT_EQ(told("nosuch"),
            "deepfreeze: there is no verb 'nosuch'\ndeepfreeze --help lists the verbs\n");
  for (const auto& [word, verb] : {std::pair("vefiry", "verify"),
                                   {"sl", "ls"},
                                   {"Show", "show"},
                                   {"explain", "explain-divergence"},
                                   {"docter", "doctor"},
                                   {"gcc", "gc"},
                                   {"scrubb", "scrub"}}) {
    EXPECT_NE(told(word).find(fmt::format("did you mean '{}'?", verb)), std::string::npos) << word;
  }
  EXPECT_LT(told(std::string(100'000, 'x')).size(), 1000U);
  EXPECT_EQ(call({}).code, 2);
  EXPECT_NE(call({}).err.find("--help"), std::string::npos);
}

TEST(Usage, LongKeysAreCutForPeopleAndWholeInJson) {
  const std::string key(100'000, 'k');
  RunFixture run;
  run.save(
      {.step = 1, .ranks = {{f32_tensor("w", {1})}}, .tree = fmt::format(R"({{"{}":1}})", key)});
  const Answer table = call({"show", run.text()});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(table.says("left out"));
  EXPECT_LT(table.out.size(), 2000U);
  EXPECT_EQ(call_json({"show", run.text()}).json()["objects"][0]["path"], key);
  const Answer refused = call({"show", run.text(), key + "x"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_LT(refused.err.size(), 2000U);
  EXPECT_LT(call_json({"show", run.text(), key + "x"}).err.size(), 2000U);
}

TEST(Usage, APathThatIsNoUtf8IsPrintedEscaped) {
  const Answer answer = call({"ls", "/nowhere/a\xff"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_NE(answer.err.find("/nowhere/a\\xff"), std::string::npos) << answer.err;
}

TEST(Usage, WhatIsNoRunIsAFailureWithOneLine) {
  RunFixture run;
  const std::string inside = run.text() + "/nothing";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"ls", inside},
                                                    {"show", inside},
                                                    {"log", inside},
                                                    {"diff", inside, inside},
                                                    {"verify", inside},
                                                    {"gc", inside, "--keep-last", "1"},
                                                    {"export", inside, inside + ".safetensors"}}) {
    const Answer answer = call(arguments);
    EXPECT_EQ(answer.code, 3) << arguments[0];
    EXPECT_EQ(answer.out, "") << arguments[0];
    EXPECT_NE(answer.err.find(inside), std::string::npos) << answer.err;
  }
  const std::filesystem::path plain = run.path() / "plain";
  std::filesystem::create_directory(plain);
  const Answer answer = call_json({"ls", plain.string()});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.json()["error"]["code"], "not_found") << answer.out;
}

TEST(Usage, StepsAndKeysThatDoNotExistAreNamed) {
  RunFixture run;
  EXPECT_EQ(call({"show", run.text()}).code, 3) << "no checkpoint at all";
  run.save(one_rank(5, {1}));
  const Answer step = call({"show", run.text() + "@6"});
  EXPECT_EQ(step.code, 3);
  EXPECT_NE(step.err.find("no checkpoint of step 6"), std::string::npos) << step.err;
  const Answer key = call({"show", run.text() + "@5", "model.x"});
  EXPECT_EQ(key.code, 3);
  EXPECT_NE(key.err.find("model.x"), std::string::npos) << key.err;
  EXPECT_EQ(call({"show", run.text() + "@newest"}).code, 2);
  EXPECT_EQ(call({"show", run.text() + "@-1"}).code, 2);
  EXPECT_EQ(call({"ls", run.text() + "@5"}).code, 2) << "ls takes a whole run";
}

TEST(Usage, DirectoryWithAnAtSignIsTakenWhole) {
  RunFixture run;
  const Manifest manifest = run.save(one_rank(5, {1}));
  const std::filesystem::path odd = run.text() + "@5";
  std::filesystem::copy(run.path(), odd, std::filesystem::copy_options::recursive);
  EXPECT_EQ(call({"ls", odd.string()}).code, 0);
  EXPECT_EQ(call({"show", odd.string() + "@5"}).code, 0);
  std::filesystem::remove_all(odd);
}

// A run file of a format that this program does not know.
TEST(Usage, NewerFormatIsRefused) {
  RunFixture run;
  std::ifstream in(run.path() / "deepfreeze.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  auto body = nlohmann::ordered_json::parse(text);
  body.erase("crc32c");
  const std::string before = body.dump();
  for (auto& [name, value] : body.items()) {
    if (value == 1 && name.find("version") != std::string::npos) value = 3;
  }
  ASSERT_NE(body.dump(), before) << text;
  std::ofstream(run.path() / "deepfreeze.json", std::ios::trunc) << seal_json(body);
  const Answer answer = call_json({"ls", run.text()});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.json()["error"]["code"], "unsupported") << answer.out;
}

TEST(Help, ThatCanNotBeWrittenIsAFailure) {
  for (const char* argument : {"--help", "--version"}) {
    const std::vector<const char*> argv{"deepfreeze", argument};
    std::ostringstream out;
    std::ostringstream err;
    const int arguments = static_cast<int>(argv.size());
    EXPECT_EQ(run_cli(arguments, argv.data(), {.out = out, .err = err}), 0);
    out.setstate(std::ios::badbit);  // as a full disk leaves it
    EXPECT_EQ(run_cli(arguments, argv.data(), {.out = out, .err = err}), 3);
    EXPECT_EQ(err.str(), "deepfreeze: write standard output: failed\n");
  }
}

}  // namespace
}  // namespace deepfreeze
