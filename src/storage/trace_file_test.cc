#include "storage/trace_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "base/trace.h"
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

}  // namespace
}  // namespace deepfreeze
