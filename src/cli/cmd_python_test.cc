#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/test_run.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

// A PATH of one directory, until it goes.
class PythonVerb : public testing::Test {
 protected:
  void SetUp() override { ::setenv("PATH", run_.text().c_str(), 1); }
  void TearDown() override { ::setenv("PATH", path_.c_str(), 1); }
  void put_python(const std::string& script) {
    const auto program = run_.path() / "python3";
    std::ofstream(program) << "#!/bin/sh\n" << script << '\n';
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  RunFixture run_;
  const std::string path_ = std::getenv("PATH");
};

TEST_F(PythonVerb, IsDoneByPythonWithTheSameArguments) {
  put_python("echo \"[$*]\" >&2; exit 7");
  EXPECT_EXIT(call({"import", "a b", "run", "--step", "7"}), testing::ExitedWithCode(7),
              "\\[-P -m deepfreeze import a b run --step 7\\]");
  EXPECT_EXIT(call({"import", "--from", "dcp", "a", "--json", "run"}), testing::ExitedWithCode(7),
              "\\[-P -m deepfreeze import --json --from dcp a run\\]");
  EXPECT_EXIT(call({"import", "--help"}), testing::ExitedWithCode(7),
              "\\[-P -m deepfreeze import --help\\]");
  EXPECT_EXIT(call({"import", "ls", "gc"}), testing::ExitedWithCode(7),
              "\\[-P -m deepfreeze import ls gc\\]");
  EXPECT_EXIT(call({"explore", "runs", "--html", "a b"}), testing::ExitedWithCode(7),
              "\\[-P -m deepfreeze explore runs --html a b\\]");
  EXPECT_EXIT(call({"study", "cost", "--quick", "--out", "a b"}), testing::ExitedWithCode(7),
              "\\[-P -m deepfreeze study cost --quick --out a b\\]");
}

// Its directory holds small runs, and the Python package takes them as one checkpoint.
TEST_F(PythonVerb, WhatDcpSavedToAnIdIsLookedAtByPython) {
  put_python("echo \"[$*]\" >&2; exit 7");
  const auto id = run_.path() / "ids" / "1";
  std::filesystem::create_directories(id / "files" / "__0_0.distcp");
  const std::string ids = (run_.path() / "ids").string();
  EXPECT_EQ(call({"ls", ids}).code, 3) << "nothing was saved yet";
  std::ofstream(id / "files" / "__0_0.distcp" / "deepfreeze.json") << "{}";
  for (const std::string& path : {ids, id.string(), ids + "@1", "deepfreeze://" + ids}) {
    EXPECT_EXIT(call({"ls", path, "--json"}), testing::ExitedWithCode(7),
                "\\[-P -m deepfreeze dcp ls " + path + " --json\\]");
  }
  EXPECT_EXIT(call({"diff", run_.text(), id.string()}), testing::ExitedWithCode(7), "dcp diff");
  EXPECT_EQ(call({"ls", ids, "--help"}).code, 0);
  EXPECT_EQ(call({"ls", run_.text()}).code, 0) << "a run, whatever else lies in it";
  EXPECT_EQ(call({"log", ids}).code, 3);
}

TEST_F(PythonVerb, WithoutPythonIsAFailure) {
  const Answer answer = call_json({"import", "a", "run"});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.json()["error"]["code"], "not_found");
  EXPECT_NE(answer.err.find("run python3 -m deepfreeze import"), std::string::npos) << answer.err;
}

}  // namespace
}  // namespace deepfreeze
