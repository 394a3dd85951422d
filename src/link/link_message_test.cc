#include "link/link_message.h"

#include <gtest/gtest.h>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

const LinkAttempt kAttempt{.step = 120, .attempt_id = 0x9f2c41d07a3be856};

// One of each kind, in the order of their numbers.
std::vector<LinkMessage> samples() {
  return {LinkHello{.run = "0123456789abcdef", .rank = 8},
          LinkPart{.attempt = kAttempt, .file = "rank", .bytes = 7, .header = std::string(3, '\0')},
          LinkSealed{.attempt = kAttempt, .files = {{"a", 1}, {"b", 0xffffffff}}},
          LinkFailed{.attempt = kAttempt, .error = Error(ErrorCode::kNoSpace, "full", 28)},
          LinkDecided{.attempt = kAttempt, .manifest = "{}"},
          LinkAsk{.attempt = kAttempt},
          LinkUnknown{.attempt = kAttempt},
          LinkGone{.attempt = kAttempt},
          LinkRead{.number = 3, .attempt = kAttempt, .file = "f", .offset = 1 << 20, .size = 4},
          LinkBytes{.number = 3, .file_bytes = 9, .bytes = "abcd"},
          LinkError{.number = 3, .error = Error(ErrorCode::kGone, "deleted")},
          LinkPing{},
          LinkProtected{.attempt = kAttempt, .stage = ParityStage::kAll}};
}

TEST(LinkMessage, IsReadAsItWasWritten) {
  const std::vector<LinkMessage> all = samples();
  ASSERT_EQ(all.size(), std::variant_size_v<LinkMessage>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto payload = encode(all[i]);
    ASSERT_TRUE(payload);
    EXPECT_EQ(payload->kind, i + 1);
    const auto read = decode(*payload);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->index(), i);
    EXPECT_EQ(encode(*read)->bytes, payload->bytes);
  }
}

TEST(LinkMessage, HasItsMembers) {
  const auto read = decode(*encode(samples()[8]));
  const auto& range = std::get<LinkRead>(*read);
  EXPECT_EQ(range.number, 3U);
  EXPECT_EQ(range.attempt, kAttempt);
  EXPECT_EQ(range.file, "f");
  EXPECT_EQ(range.offset, 1U << 20);
  EXPECT_EQ(range.size, 4U);
  const auto bytes = decode(*encode(samples()[9]));
  EXPECT_EQ(std::get<LinkBytes>(*bytes).number, 3U);
  EXPECT_EQ(std::get<LinkBytes>(*bytes).file_bytes, 9U);
  EXPECT_EQ(std::get<LinkBytes>(*bytes).bytes, "abcd");
  const auto sealed = decode(*encode(samples()[2]));
  EXPECT_EQ(std::get<LinkSealed>(*sealed).files,
            (std::vector<LinkSealed::File>{{"a", 1}, {"b", 0xffffffff}}));
  const auto failed = decode(*encode(samples()[3]));
  EXPECT_EQ(std::get<LinkFailed>(*failed).error.message(), "full");
  EXPECT_EQ(std::get<LinkFailed>(*failed).error.os_errno(), 28);
}

TEST(LinkMessage, CutAnywhereOrWithMoreIsCorrupt) {
  for (const LinkMessage& message : samples()) {
    const LinkPayload whole = *encode(message);
    for (std::size_t size = 0; size < whole.bytes.size(); ++size) {
      const LinkPayload cut{.kind = whole.kind, .bytes = whole.bytes.substr(0, size)};
      EXPECT_EQ(code_of(decode(cut)), ErrorCode::kCorrupt) << int{whole.kind} << " " << size;
    }
    EXPECT_EQ(code_of(decode({.kind = whole.kind, .bytes = whole.bytes + "x"})),
              ErrorCode::kCorrupt);
  }
}

TEST(LinkMessage, OfAnUnknownKindIsCorrupt) {
  for (const int kind : {0, 14, 128, 255}) {
    EXPECT_FALSE(is_link_kind(static_cast<std::uint8_t>(kind)));
    EXPECT_EQ(code_of(decode({.kind = static_cast<std::uint8_t>(kind)})), ErrorCode::kCorrupt);
  }
}

// The same place in the bytes of a message as `good`, with `bad` in it.
LinkPayload spoilt(const LinkMessage& message, std::string_view good, std::string_view bad) {
  LinkPayload payload = *encode(message);
  payload.bytes.replace(payload.bytes.find(good), good.size(), bad);
  return payload;
}

TEST(LinkMessage, NamesNoFileOutsideItsAttempt) {
  const std::string good = "ab";
  for (const std::string_view bad :
       {std::string_view(".."), std::string_view("a/"), std::string_view("a\0", 2)}) {
    const LinkPart part{.attempt = kAttempt, .file = good};
    const LinkRead read{.attempt = kAttempt, .file = good};
    const LinkSealed sealed{.attempt = kAttempt, .files = {{"x", 1}, {good, 2}}};
    EXPECT_EQ(code_of(decode(spoilt(part, good, bad))), ErrorCode::kCorrupt) << bad;
    EXPECT_EQ(code_of(decode(spoilt(read, good, bad))), ErrorCode::kCorrupt) << bad;
    EXPECT_EQ(code_of(decode(spoilt(sealed, good, bad))), ErrorCode::kCorrupt) << bad;
  }
}

TEST(LinkMessage, WithANameThatNoFileCanHaveIsNotWritten) {
  const std::vector<std::string> bad = {
      "", ".", "..", std::string(256, 'a'), std::string(1, '\0'), "a/b"};
  for (const std::string& name : bad) {
    EXPECT_EQ(code_of(encode(LinkPart{.file = name})), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of(encode(LinkRead{.file = name})), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of(encode(LinkSealed{.files = {{name, 1}}})), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(encode(LinkPart{.file = std::string(255, 'a')}));
}

TEST(LinkMessage, WithMoreBytesThanALinkCarriesIsNotWritten) {
  LinkBytes message{.bytes = std::string(kLinkMessageBytesMax - 24, 'x')};
  EXPECT_TRUE(encode(message));
  message.bytes += 'x';
  EXPECT_EQ(code_of(encode(message)), ErrorCode::kInvalidArgument);
}

TEST(LinkMessage, NamesABoundedNumberOfFiles) {
  LinkSealed sealed{.files = std::vector<LinkSealed::File>(kLinkFilesMax, {"a", 1})};
  const LinkPayload most = *encode(sealed);
  EXPECT_TRUE(decode(most));
  sealed.files.push_back({"a", 1});
  EXPECT_EQ(code_of(encode(sealed)), ErrorCode::kInvalidArgument);
  LinkPayload more = most;
  constexpr std::size_t kCountAt = 16;
  const std::uint64_t count = kLinkFilesMax + 1;
  more.bytes.replace(kCountAt, sizeof(count), reinterpret_cast<const char*>(&count), sizeof(count));
  more.bytes += most.bytes.substr(kCountAt + sizeof(count), 13);
  EXPECT_EQ(code_of(decode(more)), ErrorCode::kCorrupt);
}

TEST(LinkMessage, SaysThatSomethingFailedOnlyWithAnError) {
  LinkPayload payload = *encode(samples()[3]);
  payload.bytes = payload.bytes.substr(0, 16) + '\1';  // "it went well"
  EXPECT_EQ(code_of(decode(payload)), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deepfreeze
