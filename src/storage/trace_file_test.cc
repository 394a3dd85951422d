#include "storage/trace_file.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "base/scope_exit.h"
#include "base/trace.h"
#include "support/deny_syscall.h"
#include "support/scoped_dir.h"

namespace deepfreeze {
namespace {

class TraceFileTest : public testing::Test {
 protected:
  ~TraceFileTest() override {
    ::unsetenv("DEEPFREEZE_TRACE");
    set_log_sink({});
    trace::stop();
  }
  void name_file(const std::string& path) { ::setenv("DEEPFREEZE_TRACE", path.c_str(), 1); }

  ScopedDir dir_;
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(TraceFileTest, WithoutTheVariableThereIsNone) {
  ::unsetenv("DEEPFREEZE_TRACE");
  EXPECT_EQ(TraceFile::from_environment().value(), nullptr);
  EXPECT_FALSE(trace::active);
}

// First of those that begin a trace: a process empties its file once.
TEST_F(TraceFileTest, OneThatCantBeMadeIsAnErrorAtOnce) {
  name_file(dir_.path() / "missing" / "trace.json");
  const auto file = TraceFile::from_environment();
  ASSERT_FALSE(file.has_value());
  EXPECT_TRUE(file.error().message().contains("open ")) << file.error().message();
}

TEST_F(TraceFileTest, HoldsTheSpansOfTheProcessAfterEachFlush) {
  const std::string path = dir_.path() / "trace.json";
  name_file(path);
  const auto file = TraceFile::from_environment().value();
  {
    const trace::Span span("copy");
  }
  file->flush();
  EXPECT_TRUE(text_of(path).find(R"("name":"copy")") != std::string::npos);
  {
    const trace::Span span("seal");
  }
  file->flush();
  EXPECT_TRUE(text_of(path).find(R"("name":"seal")") != std::string::npos);
}

TEST_F(TraceFileTest, ARelativePathMeansOneFileForTheWholeProcess) {
  const auto before = std::filesystem::current_path();
  const ScopeExit go_back([&before] { std::filesystem::current_path(before); });
  std::filesystem::current_path(dir_.path());
  name_file("relative.json");
  const auto first = TraceFile::from_environment().value();
  std::filesystem::create_directory(dir_.path() / "elsewhere");
  std::filesystem::current_path(dir_.path() / "elsewhere");
  const auto second = TraceFile::from_environment().value();
  {
    const trace::Span span("copy");
  }
  second->flush();
  EXPECT_FALSE(text_of(dir_.path() / "relative.json").empty());
  EXPECT_FALSE(std::filesystem::exists("relative.json"));
}

TEST_F(TraceFileTest, AFileThatCantBeWrittenEndsTheTraceWithOneLine) {
  std::vector<std::string> lines;
  set_log_sink([&lines](std::string_view line) { lines.emplace_back(line); });
  TraceFile file(dir_.path() / "missing" / "trace.json");
  trace::start();
  for (int i = 0; i < 3; ++i) {
    {
      const trace::Span span("copy");
    }
    file.flush();
  }
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("the trace ends here"), std::string::npos) << lines[0];
}

TEST_F(TraceFileTest, AFullDiskEndsItToo) {
  std::vector<std::string> lines;
  set_log_sink([&lines](std::string_view line) { lines.emplace_back(line); });
  TraceFile file(dir_.path() / "trace.json");
  trace::start();
  for (const int os_errno : {0, ENOSPC}) {  // 0: nothing is written, and no error told
    {
      const trace::Span span("copy");
    }
    const bool ran = run_with_denied({.number = SYS_write, .os_errno = os_errno, .least = 64},
                                     [&file] { file.flush(); });
    if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  }
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].contains("Input/output error")) << lines[0];
}

}  // namespace
}  // namespace deepfreeze
