#include "base/trace.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace deepfreeze {
namespace {

class TraceTest : public testing::Test {
 protected:
  TraceTest() { trace::start(); }
  ~TraceTest() override { trace::stop(); }
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(TraceTest, SpansAreTakenOnceWithTheirBytes) {
  {
    const trace::Span span("copy", 4096);
  }
  const std::string text = trace::take();
  EXPECT_EQ(count_of(text, R"("name":"copy")"), 1U);
  EXPECT_EQ(count_of(text, R"("ph":"X")"), 1U);
  EXPECT_EQ(count_of(text, R"("args":{"bytes":4096})"), 1U);
  EXPECT_TRUE(trace::take().empty());
}

TEST_F(TraceTest, ASpanOverThreadsHasTwoEndsWithOneId) {
  trace::begin("write", 7);
  std::jthread([] { trace::end("write", 7); }).join();
  const std::string text = trace::take();
  EXPECT_EQ(count_of(text, R"("ph":"b")"), 1U);
  EXPECT_EQ(count_of(text, R"("ph":"e")"), 1U);
  EXPECT_EQ(count_of(text, R"("id":7)"), 2U);
  EXPECT_EQ(count_of(text, R"("name":"thread_name")"), 2U);
}

TEST_F(TraceTest, EveryLineEndsAsAnElementOfAnArray) {
  {
    const trace::Span span("seal");
  }
  const std::string text = trace::take();
  EXPECT_EQ(count_of(text, "},\n"), count_of(text, "\n"));
}

TEST_F(TraceTest, WhatIsNotTakenIsBoundedAndCounted) {
  for (std::size_t i = 0; i < trace::kEventsMax + 3; ++i) trace::begin("many", i);
  const std::string text = trace::take();
  EXPECT_EQ(count_of(text, R"("name":"many")"), trace::kEventsMax);
  EXPECT_EQ(count_of(text, R"("name":"dropped 3")"), 1U);
}

TEST(Trace, OffNothingIsRecorded) {
  {
    const trace::Span span("copy");
  }
  trace::begin("write", 1);
  EXPECT_TRUE(trace::take().empty());
}

}  // namespace
}  // namespace deepfreeze
