#include "object/answer_reader.h"

#include <gtest/gtest.h>

#include <array>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

// The whole answer, line by line.
AnswerReader reader_of(std::initializer_list<std::string_view> head,
                       std::span<std::byte> into = {}) {
  AnswerReader reader(into);
  for (const std::string_view line : head) EXPECT_TRUE(reader.take_head(line));
  EXPECT_TRUE(reader.take_head("\r\n"));
  return reader;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(AnswerReader, HasStatusFieldsAndBody) {
  auto reader = reader_of(
      {"HTTP/1.1 200 OK\r\n", "ETag: \"a: b\" \r\n", "X-Empty:\r\n", "x-amz-request-id:\t17\r\n"});
  EXPECT_TRUE(reader.take_body("one "));
  EXPECT_TRUE(reader.take_body("two"));
  const auto answer = reader.finish();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "one two");
  EXPECT_EQ(answer->field("etag"), "\"a: b\"");
  EXPECT_EQ(answer->field("x-empty"), "");
  EXPECT_EQ(answer->field("x-amz-request-id"), "17");
  EXPECT_EQ(answer->field("content-length"), std::nullopt);
  EXPECT_EQ(answer->fields.size(), 3U);
}

TEST(AnswerReader, TakesTheFirstFieldOfAName) {
  auto reader = reader_of({"HTTP/1.1 200 OK\r\n", "a: 1\r\n", "A: 2\r\n"});
  EXPECT_EQ(reader.finish()->field("a"), "1");
}

TEST(AnswerReader, ForgetsTheHeadsOfInterimAnswers) {
  auto reader = reader_of(
      {"HTTP/1.1 100 Continue\r\n", "a: 1\r\n", "\r\n", "HTTP/1.1 404 Not Found\r\n", "b: 2\r\n"});
  const auto answer = reader.finish();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->fields, (std::vector<HttpField>{{"b", "2"}}));
}

TEST(AnswerReader, SurvivesOddStatusLines) {
  for (const std::string_view line : {"HTTP/1.1", "HTTP/1.1 \r\n", "HTTP/1.1 x\r\n", "HTTP/"}) {
    auto reader = reader_of({line});
    EXPECT_EQ(reader.finish()->status, 0) << line;
  }
}

TEST(AnswerReader, RefusesAHeadThatIsCut) {
  AnswerReader reader({});
  EXPECT_EQ(code_of(reader.finish()), ErrorCode::kIo);
  EXPECT_TRUE(reader.take_head("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(reader.take_head("content-le"));
  EXPECT_EQ(code_of(reader.finish()), ErrorCode::kIo);
  EXPECT_TRUE(reader.take_head("\r\n"));
  EXPECT_TRUE(reader.take_head("HTTP/1.1 200 OK\r\n"));  // the one before was an interim answer
  EXPECT_EQ(code_of(reader.finish()), ErrorCode::kIo);
}

TEST(AnswerReader, WritesASuccessWhereItIsWanted) {
  std::array<std::byte, 8> place{};
  auto reader = reader_of({"HTTP/1.1 206 Partial Content\r\n", "Content-Length: 6\r\n"}, place);
  EXPECT_TRUE(reader.take_body("abcd"));
  EXPECT_TRUE(reader.take_body("ef"));
  const auto answer = reader.finish();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->into_bytes, 6U);
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(text_of(place).substr(0, 6), "abcdef");
}

TEST(AnswerReader, KeepsTheBodyOfAFailureApart) {
  std::array<std::byte, 2> place{};
  auto reader = reader_of({"HTTP/1.1 404 Not Found\r\n"}, place);
  EXPECT_TRUE(reader.take_body("NoSuchKey"));
  const auto answer = reader.finish();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "NoSuchKey");
  EXPECT_EQ(answer->into_bytes, 0U);
}

TEST(AnswerReader, RefusesMoreThanWasAskedFor) {
  std::array<std::byte, 9> place{};
  const std::span into = std::span(place).first(8);
  auto reader = reader_of({"HTTP/1.1 200 OK\r\n", "content-length: 9\r\n"}, into);
  EXPECT_TRUE(reader.take_body("12345678"));
  EXPECT_FALSE(reader.take_body("9"));
  EXPECT_EQ(reader.refusal(), "the answer has more than the 8 bytes asked for");
  EXPECT_EQ(place[8], std::byte{0});
}

TEST(AnswerReader, BoundsTheBody) {
  auto reader = reader_of({"HTTP/1.1 200 OK\r\n"});
  const std::string half(kHttpBodyBytesMax / 2, 'x');
  EXPECT_TRUE(reader.take_body(half));
  EXPECT_TRUE(reader.take_body(half));
  EXPECT_FALSE(reader.take_body("x"));
  EXPECT_TRUE(reader.refusal().contains("16777216")) << reader.refusal();
}

TEST(AnswerReader, BoundsAllHeadsTogether) {
  AnswerReader reader({});
  const std::string line = "HTTP/1.1 100 " + std::string(1'000, 'x') + "\r\n";
  std::size_t bytes = 0;
  for (; bytes + line.size() <= kHttpHeadBytesMax; bytes += line.size()) {
    ASSERT_TRUE(reader.take_head(line));
  }
  EXPECT_EQ(reader.head_bytes(), bytes);
  EXPECT_FALSE(reader.take_head(line));
  EXPECT_TRUE(reader.refusal().contains("262144")) << reader.refusal();
}

TEST(AnswerReader, TrustsNoEndThatOnlyTheConnectionTells) {
  std::array<std::byte, 8> place{};
  auto reader = reader_of({"HTTP/1.1 200 OK\r\n"}, place);
  EXPECT_TRUE(reader.take_body("abc"));
  EXPECT_EQ(code_of(reader.finish()), ErrorCode::kIo);
  auto chunked = reader_of({"HTTP/1.1 200 OK\r\n", "Transfer-Encoding: chunked\r\n"}, place);
  EXPECT_TRUE(chunked.finish());
}

}  // namespace
}  // namespace deepfreeze
