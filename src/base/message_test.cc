#include "base/message.h"

#include <gtest/gtest.h>

#include "base/try.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

std::string sample() {
  MessageWriter message;
  message.number(std::uint64_t{7}).flag(true).text("weights").number(std::uint32_t{3});
  message.status(fail(ErrorCode::kNoSpace, "the disk is full", 28));
  return message.take();
}

TEST(Message, IsReadAsItWasWritten) {
  const std::string bytes = sample();
  MessageReader message(bytes);
  EXPECT_EQ(message.number<std::uint64_t>(), 7U);
  EXPECT_TRUE(message.flag());
  EXPECT_EQ(message.text(), "weights");
  EXPECT_EQ(message.number<std::uint32_t>(), 3U);
  const Status status = message.status();
  ASSERT_EQ(code_of(status), ErrorCode::kNoSpace);
  EXPECT_EQ(status.error().message(), "the disk is full");
  EXPECT_EQ(status.error().os_errno(), 28);
  EXPECT_TRUE(message.end());
}

Status read_sample(std::string_view bytes) {
  MessageReader message(bytes);
  std::ignore = message.number<std::uint64_t>();
  std::ignore = message.flag();
  std::ignore = message.text();
  std::ignore = message.number<std::uint32_t>();
  std::ignore = message.status();
  return message.end();
}

TEST(Message, CutAnywhereIsAnError) {
  const std::string bytes = sample();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(code_of(read_sample(bytes.substr(0, size))), ErrorCode::kInternal) << size;
  }
  EXPECT_TRUE(read_sample(bytes));
}

TEST(Message, WithMoreThanExpectedIsAnError) {
  EXPECT_EQ(code_of(read_sample(sample() + "x")), ErrorCode::kInternal);
}

TEST(Message, CountsNoMoreElementsThanThereIsRoomFor) {
  MessageWriter message;
  message.number(std::uint64_t{1} << 60).number(std::uint64_t{1});
  const std::string bytes = message.take();
  MessageReader reader(bytes);
  EXPECT_EQ(reader.count(8), 0U);
  EXPECT_EQ(code_of(reader.end()), ErrorCode::kInternal);
}

TEST(Message, OfAnUnknownErrorCodeIsOurOwnMistake) {
  MessageWriter message;
  message.flag(false).number(std::uint8_t{200}).text("?").number(std::uint32_t{0});
  const std::string bytes = message.take();
  MessageReader reader(bytes);
  EXPECT_EQ(code_of(reader.status()), ErrorCode::kInternal);
  EXPECT_TRUE(reader.end());
}

}  // namespace
}  // namespace deepfreeze
