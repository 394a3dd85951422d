// Uploads, files and renames of a tier over a store in memory, with parts of a page.
#include "object/object_tier.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/mapped_memory.h"
#include "object/fake_store.h"
#include "object/object_upload.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTestPart = 4096;

class ObjectTierTest : public FakeStoreTest {
 protected:
  void TearDown() override { set_log_sink({}); }

  // Appends `text` in pieces of that size, from memory as an Upload wants it.
  static Status append(Upload& upload, std::string_view text, std::size_t piece) {
    const MappedMemory pages =
        MappedMemory::allocate(std::max<std::size_t>(text.size(), 1)).value();
    std::memcpy(pages.bytes().data(), text.data(), text.size());
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const auto bytes = pages.bytes().subspan(at, std::min(piece, text.size() - at));
      if (const Status appended = upload.append(bytes, {}); !appended) return appended;
    }
    return {};
  }
  Status put_file(std::string_view name, std::string_view text, IfTaken if_taken = IfTaken::kRefuse,
                  std::size_t piece = 2 * kTestPart) {
    auto upload = tier_->begin(name, text.size(), if_taken);
    if (!upload) return std::unexpected(upload.error());
    const Status appended = append(**upload, text, piece);
    return appended ? (*upload)->finish() : appended;
  }
  std::string read(std::string_view name) {
    return read_file(tier_->view(), name, 1U << 20U).value_or("unreadable");
  }

  std::unique_ptr<TierStore> tier_ = make_object_tier(client_, kTestPart);
};

TEST_F(ObjectTierTest, FilesOfAnySizeArrive) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kTestPart - 1, kTestPart,
                                 kTestPart + 1, 2 * kTestPart, 9 * kTestPart + 77}) {
    for (const std::size_t piece : {kTestPart, 3 * kTestPart, 100 * kTestPart}) {
      const std::string name = fmt::format("step/file-{}-{}", size, piece);
      const std::string text = random_text(size, static_cast<std::uint32_t>(size));
      ASSERT_EQ(message_of(put_file(name, text, IfTaken::kRefuse, piece)), "") << name;
      EXPECT_EQ(read(name), text) << name;
      EXPECT_EQ(client_->head(name)->crc32c, crc_of_text(text)) << name;
    }
  }
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(ObjectTierTest, AfterStopNothingIsAskedButToEndAnUpload) {
  ASSERT_TRUE(put_file("there", "text"));
  {
    const auto upload = tier_->begin("file", 3 * kTestPart, IfTaken::kRefuse).value();
    ASSERT_EQ(store_->open_uploads(), 1U);
    tier_->stop();
    const Status appended = append(*upload, random_text(3 * kTestPart), kTestPart);
    EXPECT_EQ(code_of(appended ? upload->finish() : appended), ErrorCode::kCancelled);
  }
  EXPECT_EQ(store_->open_uploads(), 0U);
  EXPECT_EQ(code_of(put_file("small", "text")), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(tier_->view().open_read("there", Access::kBuffered)), ErrorCode::kCancelled);
}

// In one part, and over several.
TEST_F(ObjectTierTest, BytesThatDifferFromTheirChecksumAreNotSent) {
  for (const std::size_t size : {kTestPart, 3 * kTestPart + 5}) {
    const std::string text = random_text(size);
    const auto pages = MappedMemory::allocate(size).value();
    std::memcpy(pages.bytes().data(), text.data(), size);
    const auto bytes = pages.bytes().first(size);
    for (const bool is_right : {false, true}) {
      const auto upload = tier_->begin("file", size, IfTaken::kRefuse).value();
      const Status appended = upload->append(bytes, crc_of_text(text) ^ (is_right ? 0U : 1U));
      EXPECT_EQ(code_of(appended), is_right ? std::optional<ErrorCode>() : ErrorCode::kCorrupt);
      EXPECT_EQ(upload->finish().has_value(), is_right);
    }
    EXPECT_EQ(read("file"), text);
    ASSERT_TRUE(client_->remove("file"));
  }
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(ObjectTierTest, AFileOfOnePartIsOnePut) {
  ASSERT_TRUE(put_file("small", random_text(kTestPart)));
  EXPECT_EQ(store_->log(), std::vector<std::string>{"PUT runs/a/small"});
}

TEST_F(ObjectTierTest, AFileOfPartsTakesTwoMoreRequests) {
  ASSERT_TRUE(put_file("large", random_text(5 * kTestPart)));
  EXPECT_EQ(store_->request_count(), 7U);
}

TEST_F(ObjectTierTest, NoNameIsThereBeforeTheEnd) {
  for (const std::size_t size : {kTestPart, 5 * kTestPart}) {
    const std::string text = random_text(size);
    const auto upload = tier_->begin("file", size, IfTaken::kRefuse).value();
    ASSERT_TRUE(append(*upload, text, kTestPart));
    EXPECT_TRUE(store_->keys().empty());
    ASSERT_TRUE(upload->finish());
    EXPECT_EQ(read("file"), text);
    ASSERT_TRUE(client_->remove("file"));
  }
}

TEST_F(ObjectTierTest, ATakenNameIsRefusedUnlessItIsReplaced) {
  for (const std::size_t size : {std::size_t{10}, 3 * kTestPart}) {
    store_->plant("file", "there");
    EXPECT_EQ(code_of(put_file("file", random_text(size))), ErrorCode::kExists);
    EXPECT_EQ(read("file"), "there");
    EXPECT_TRUE(put_file("file", random_text(size), IfTaken::kReplace));
    EXPECT_EQ(read("file"), random_text(size));
  }
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(ObjectTierTest, WhatIsGivenUpLeavesNothing) {
  for (const std::size_t appended : {std::size_t{0}, kTestPart, 4 * kTestPart}) {
    const auto upload = tier_->begin("file", 5 * kTestPart, IfTaken::kRefuse).value();
    ASSERT_TRUE(append(*upload, random_text(appended), kTestPart));
  }
  EXPECT_TRUE(store_->keys().empty());
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(ObjectTierTest, AStopAtAnyPointLeavesTheWholeFileOrNothing) {
  for (const std::size_t size : {kTestPart, 5 * kTestPart}) {
    const std::string text = random_text(size);
    for (const char* point : {"tier.created", "tier.append", "tier.written", "tier.renamed"}) {
      ASSERT_TRUE(fail_points::arm(fmt::format("{}=error", point)));
      const bool is_put = put_file("file", text).has_value();
      fail_points::disarm();
      const bool is_one_put = size == kTestPart;
      EXPECT_EQ(is_put, is_one_put && std::string_view(point) == "tier.created") << point;
      EXPECT_EQ(store_->open_uploads(), 0U) << point;
      const bool is_there = is_put || std::string_view(point) == "tier.renamed";
      EXPECT_EQ(store_->contents("file"), is_there ? std::optional(text) : std::nullopt) << point;
      ASSERT_TRUE(client_->remove("file"));
    }
  }
}

TEST_F(ObjectTierTest, AnUploadThatCantBeAbortedIsReported) {
  std::string logged;
  set_log_sink([&](std::string_view line) { logged = line; });
  {
    const auto upload = tier_->begin("file", 5 * kTestPart, IfTaken::kRefuse).value();
    answer_always(FakeS3::error(403, "AccessDenied"));
  }
  EXPECT_NE(logged.find("an unfinished upload stays"), std::string::npos) << logged;
}

TEST_F(ObjectTierTest, TooFewOrTooManyBytesAreOurMistake) {
  for (const std::size_t size : {kTestPart, 3 * kTestPart}) {
    const auto upload = tier_->begin("file", size, IfTaken::kRefuse).value();
    EXPECT_EQ(code_of(append(*upload, random_text(size + 1), size + 1)), ErrorCode::kInternal);
    ASSERT_TRUE(append(*upload, random_text(size - 1), kTestPart));
    EXPECT_EQ(code_of(upload->finish()), ErrorCode::kInternal);
  }
  EXPECT_TRUE(store_->keys().empty());
}

// Each part in turn; those before and behind it arrive.
TEST_F(ObjectTierTest, AnErrorOfAnyPartIsThatOfTheUpload) {
  constexpr int kParts = 7;
  for (int failing = 1; failing <= kParts; ++failing) {
    const std::string part = fmt::format("partNumber={}&", failing);
    store_->set_hook([part](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
      if (request.url.find(part) == std::string::npos) return std::nullopt;
      return FakeS3::error(403, "AccessDenied");
    });
    EXPECT_EQ(code_of(put_file("file", random_text(kParts * kTestPart))),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(store_->open_uploads(), 0U) << failing;
  }
  EXPECT_TRUE(store_->keys().empty());
}

// The store sees as many at once as there are threads, and the sender is held up meanwhile.
TEST_F(ObjectTierTest, SeveralPartsAreInFlightAndNoMore) {
  std::atomic<std::size_t> at_once{0};
  std::atomic<std::size_t> most{0};
  std::atomic<std::size_t> sent{0};
  store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.url.find("partNumber") == std::string::npos) return std::nullopt;
    const std::size_t now = ++at_once;
    most = std::max<std::size_t>(most, now);
    // The first ones wait for each other.
    while (sent == 0 && most < kPartsInFlight) std::this_thread::yield();
    ++sent;
    --at_once;
    return std::nullopt;
  });
  ASSERT_EQ(message_of(put_file("file", random_text(20 * kTestPart))), "");
  EXPECT_EQ(most, kPartsInFlight);
  EXPECT_EQ(read("file"), random_text(20 * kTestPart));
}

// Three parts are in flight and a fourth one waits when the store begins to refuse them.
TEST_F(ObjectTierTest, APartThatWaitsIsNotSentAfterAnError) {
  std::atomic<std::size_t> asked{0};
  std::atomic<bool> may_answer{false};
  store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.url.find("partNumber") == std::string::npos) return std::nullopt;
    ++asked;
    while (!may_answer) std::this_thread::yield();
    return FakeS3::error(403, "AccessDenied");
  });
  {
    const auto upload = tier_->begin("file", 9 * kTestPart, IfTaken::kRefuse).value();
    ASSERT_TRUE(append(*upload, random_text((kPartsInFlight + 1) * kTestPart), kTestPart));
    while (asked < kPartsInFlight) std::this_thread::yield();
    may_answer = true;
  }
  EXPECT_EQ(asked, kPartsInFlight);
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(ObjectTierTest, PartsGrowWithTheFile) {
  EXPECT_EQ(part_bytes_for(kPartBytes + 1, kPartBytes), kPartBytes);
  EXPECT_EQ(part_bytes_for(kPartsMax * kPartBytes, kPartBytes), kPartBytes);
  EXPECT_EQ(part_bytes_for(kPartsMax * kPartBytes + 1, kPartBytes), kPartBytes + (1U << 20U));
  const std::uint64_t largest = part_bytes_for(kObjectBytesMax, kPartBytes);
  EXPECT_LE((kObjectBytesMax + largest - 1) / largest, kPartsMax);
  EXPECT_LT(largest, std::uint64_t{600} << 20U);
}

TEST_F(ObjectTierTest, AFileBeyondS3sBoundIsRefusedBeforeAnyRequest) {
  EXPECT_EQ(code_of(tier_->begin("file", kObjectBytesMax + 1, IfTaken::kRefuse)),
            ErrorCode::kNoSpace);
  EXPECT_EQ(store_->request_count(), 0U);
}

TEST_F(ObjectTierTest, NamesThatLeaveThePlaceAreRefused) {
  for (const char* name : {"../other", "/etc", "a//b", "", "a/../../b", "a?b"}) {
    EXPECT_EQ(code_of(tier_->begin(name, 1, IfTaken::kRefuse)), ErrorCode::kInvalidArgument);
    Vfs& view = tier_->view();
    EXPECT_EQ(code_of(view.open_read(name, Access::kBuffered)), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of(view.remove_file(name)), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of(view.rename_no_replace(name, "a")), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of(view.rename_no_replace("a", name)), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(code_of(tier_->view().list("../a")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->request_count(), 0U);
}

}  // namespace
}  // namespace deepfreeze
