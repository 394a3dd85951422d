#include "link/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "base/try.h"
#include "support/code_of.h"

namespace deepfreeze {
namespace {

constexpr std::uint8_t kBytesKind = 10;  // a kind without a form of its own
constexpr std::uint8_t kPingKind = 12;
constexpr FrameLimits kSmall{.frame_bytes = 8, .message_bytes = 30};

LinkPayload payload_of(std::string bytes) {
  return {.kind = kBytesKind, .bytes = std::move(bytes)};
}

std::string frame(std::uint32_t length, std::uint8_t kind, std::string_view bytes) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>(length >> 8 * i & 0xff);
  text += static_cast<char>(kind);
  return text += bytes;
}

// All messages in the bytes, which come in pieces of a size.
Result<std::vector<LinkPayload>> read_all(std::string_view bytes, std::size_t piece,
                                          FrameLimits limits = kSmall) {
  FrameReader reader(limits);
  std::vector<LinkPayload> read;
  while (!bytes.empty()) {
    std::string_view front = bytes.substr(0, piece);
    bytes.remove_prefix(front.size());
    while (!front.empty()) {
      DF_TRY(auto message, reader.take(front));
      if (message) read.push_back(std::move(*message));
    }
  }
  return read;
}

TEST(Frame, HasLengthKindAndBytes) {
  EXPECT_EQ(to_frames(payload_of("abc"), 8), frame(3, kBytesKind, "abc"));
  EXPECT_EQ(to_frames({.kind = kPingKind}, 8), frame(0, kPingKind, ""));
}

TEST(Frame, AllButTheLastAreFullAndGoOn) {
  EXPECT_EQ(to_frames(payload_of("abcdefgh"), 8), frame(8, kBytesKind, "abcdefgh"));
  EXPECT_EQ(to_frames(payload_of("abcdefghi"), 8),
            frame(8, kBytesKind | 0x80, "abcdefgh") + frame(1, kBytesKind, "i"));
}

TEST(Frame, IsReadHoweverItComes) {
  std::string bytes;
  for (std::size_t size = 0; size <= 30; ++size) {
    bytes += to_frames(payload_of(std::string(size, 'x')), 8);
  }
  for (std::size_t piece = 1; piece < 60; ++piece) {
    const auto read = read_all(bytes, piece);
    ASSERT_TRUE(read) << read.error().message();
    ASSERT_EQ(read->size(), 31U);
    for (std::size_t size = 0; size <= 30; ++size) {
      EXPECT_EQ((*read)[size].kind, kBytesKind);
      EXPECT_EQ((*read)[size].bytes, std::string(size, 'x'));
    }
  }
}

TEST(Frame, OfAMessageOfMostBytesIsRead) {
  const std::string most(kLinkMessageBytesMax, 'y');
  const auto read = read_all(to_frames(payload_of(most)), 100'000, FrameLimits{});
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 1U);
  EXPECT_TRUE(read->front().bytes == most);
}

struct Bad {
  const char* why;
  std::string bytes;
};

const std::vector<Bad>& bad_bytes() {
  static const std::vector<Bad> all = {
      {"frame of 9 bytes", frame(9, kBytesKind, "")},
      {"frame of 4294967295 bytes", frame(0xffffffff, kBytesKind, "")},
      {"goes on", frame(7, kBytesKind | 0x80, "abcdefg")},
      {"goes on", frame(0, kBytesKind | 0x80, "")},
      {"empty frame", frame(8, kBytesKind | 0x80, "abcdefgh") + frame(0, kBytesKind, "")},
      {"kind 0", frame(0, 0, "")},
      {"kind 14", frame(0, 14, "")},
      {"kind 127", frame(8, 0xff, "abcdefgh")},
      {"kind 12", frame(8, kBytesKind | 0x80, "abcdefgh") + frame(1, kPingKind, "i")},
      {"more than 30 bytes",
       frame(8, kBytesKind | 0x80, "abcdefgh") + frame(8, kBytesKind | 0x80, "abcdefgh") +
           frame(8, kBytesKind | 0x80, "abcdefgh") + frame(7, kBytesKind, "")}};
  return all;
}

TEST(Frame, OfAnotherFormIsCorrupt) {
  for (const Bad& bad : bad_bytes()) {
    for (std::size_t piece = 1; piece < 50; piece += 6) {
      const auto read = read_all(frame(1, kBytesKind, "a") + bad.bytes, piece);
      ASSERT_EQ(code_of(read), ErrorCode::kCorrupt) << bad.why;
      EXPECT_TRUE(read.error().message().contains(bad.why)) << read.error().message();
    }
  }
}

TEST(Frame, OfALongerMessageIsTakenOnceItIsAllowed) {
  FrameReader reader({.frame_bytes = 8, .message_bytes = 2});
  const std::string bytes = frame(2, kBytesKind, "ab") + frame(3, kBytesKind, "abc");
  std::string_view left = bytes;
  ASSERT_TRUE(reader.take(left));
  reader.set_message_bytes_max(3);
  const auto second = reader.take(left);
  ASSERT_TRUE(second && *second);
  EXPECT_EQ((*second)->bytes, "abc");
}

TEST(Frame, OfAnyBytesIsReadOrRefused) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = to_frames(payload_of(std::string(random() % 31, 'x')), 8);
    bytes += to_frames(payload_of(std::string(random() % 31, 'y')), 8);
    bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto read = read_all(bytes, 1 + random() % 20);
    if (!read) {
      EXPECT_EQ(code_of(read), ErrorCode::kCorrupt);
      continue;
    }
    std::string again;
    for (const LinkPayload& payload : *read) again += to_frames(payload, 8);
    EXPECT_TRUE(bytes.starts_with(again));
  }
}

}  // namespace
}  // namespace deepfreeze
