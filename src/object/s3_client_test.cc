#include "object/s3_client.h"

#include <array>

#include "object/fake_store.h"

namespace deepfreeze {
namespace {

class S3ClientTest : public FakeStoreTest {
 protected:
  // Sends `texts` as parts, in the reverse order.
  Result<std::vector<UploadedPart>> put_parts(const std::string& id,
                                              const std::vector<std::string>& texts) {
    std::vector<UploadedPart> parts(texts.size());
    for (std::size_t i = texts.size(); i-- > 0;) {
      auto part = client_->put_part("big", id, static_cast<int>(i + 1), bytes_of(texts[i]),
                                    crc_of_text(texts[i]));
      if (!part) return std::unexpected(part.error());
      parts[i] = *std::move(part);
    }
    return parts;
  }
  Status complete(const std::string& id, const std::vector<UploadedPart>& parts,
                  const std::string& whole, IfPresent if_present = IfPresent::kRefuse) {
    return client_->complete("big", id, parts,
                             {.bytes = whole.size(), .crc32c = crc_of_text(whole)}, if_present);
  }
};

TEST_F(S3ClientTest, PutsLooksGetsAndDeletes) {
  const std::string text = random_text(1'000);
  ASSERT_EQ(message_of(put("dir/file", text)), "");
  EXPECT_EQ(store_->contents("dir/file"), text);
  const auto info = client_->head("dir/file");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->bytes, text.size());
  EXPECT_EQ(info->crc32c, crc_of_text(text));
  std::array<std::byte, 100> some{};
  EXPECT_EQ(client_->get("dir/file", 450, some).value(), some.size());
  EXPECT_TRUE(std::ranges::equal(some, bytes_of(text).subspan(450, some.size())));
  EXPECT_EQ(client_->get("dir/file", 950, some).value(), 50U);
  EXPECT_EQ(client_->get("dir/file", 1'000, some).value(), 0U);
  EXPECT_EQ(client_->get("dir/file", 0, {}).value(), 0U);
  ASSERT_TRUE(client_->remove("dir/file"));
  EXPECT_TRUE(client_->remove("dir/file"));
  EXPECT_EQ(code_of(client_->head("dir/file")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(client_->get("dir/file", 0, some)), ErrorCode::kNotFound);
}

TEST_F(S3ClientTest, AnEmptyObjectIsPut) {
  ASSERT_TRUE(put("empty", ""));
  EXPECT_EQ(store_->contents("empty"), "");
  EXPECT_EQ(client_->head("empty")->bytes, 0U);
}

TEST_F(S3ClientTest, ATakenKeyIsRefusedUnlessItIsToBeReplaced) {
  ASSERT_TRUE(put("key", "first"));
  const Status second = put("key", "other");
  EXPECT_EQ(code_of(second), ErrorCode::kExists);
  EXPECT_NE(message_of(second).find("put s3://bucket/runs/a/key: 412 PreconditionFailed"),
            std::string::npos)
      << message_of(second);
  EXPECT_EQ(store_->contents("key"), "first");
  EXPECT_TRUE(put("key", "other", IfPresent::kReplace));
  EXPECT_EQ(store_->contents("key"), "other");
}

// They may have been damaged on the way, so they are sent again.
TEST_F(S3ClientTest, BytesThatAreNotTheirChecksumsAreRefused) {
  const Status put = client_->put("key", bytes_of("bytes"), 1, IfPresent::kRefuse);
  EXPECT_EQ(code_of(put), ErrorCode::kTimeout);
  EXPECT_EQ(store_->request_count(), std::size_t{kTriesMax});
  const std::string id = client_->begin_upload("big").value();
  EXPECT_EQ(code_of(client_->put_part("big", id, 1, bytes_of("bytes"), 1)), ErrorCode::kTimeout);
  const auto parts = put_parts(id, {"one", "two"});
  ASSERT_TRUE(parts);
  EXPECT_EQ(code_of(complete(id, *parts, "onetwo!")), ErrorCode::kTimeout);
  EXPECT_FALSE(store_->contents("big"));
  EXPECT_TRUE(complete(id, *parts, "onetwo"));
}

TEST_F(S3ClientTest, PartsBecomeOneObject) {
  const std::string id = client_->begin_upload("big").value();
  EXPECT_EQ(store_->open_uploads(), 1U);
  const auto parts = put_parts(id, {"one", "two", "three"});
  ASSERT_TRUE(parts) << message_of(parts);
  EXPECT_FALSE(store_->contents("big"));
  ASSERT_EQ(message_of(complete(id, *parts, "onetwothree")), "");
  EXPECT_EQ(store_->contents("big"), "onetwothree");
  EXPECT_EQ(client_->head("big")->crc32c, crc_of_text("onetwothree"));
  EXPECT_EQ(store_->open_uploads(), 0U);
}

TEST_F(S3ClientTest, ACompleteRefusesATakenKeyAndItsUploadCanBeAborted) {
  ASSERT_TRUE(put("big", "there"));
  const std::string id = client_->begin_upload("big").value();
  const auto parts = put_parts(id, {"mine"});
  EXPECT_EQ(code_of(complete(id, *parts, "mine")), ErrorCode::kExists);
  EXPECT_EQ(store_->contents("big"), "there");
  EXPECT_EQ(store_->open_uploads(), 1U);
  EXPECT_TRUE(client_->abort("big", id));
  EXPECT_EQ(store_->open_uploads(), 0U);
  EXPECT_TRUE(client_->abort("big", id));
}

TEST_F(S3ClientTest, APartOrACompleteOfAnUploadThatIsGoneIsNotCalledMissing) {
  const std::string id = client_->begin_upload("big").value();
  const auto parts = put_parts(id, {"mine"});
  ASSERT_TRUE(client_->abort("big", id));
  EXPECT_EQ(code_of(client_->put_part("big", id, 1, bytes_of("a"), crc_of_text("a"))),
            ErrorCode::kIo);
  EXPECT_EQ(code_of(complete(id, *parts, "mine")), ErrorCode::kIo);
  // Another process has completed the file, and has aborted this upload of it.
  store_->plant("big", "mine");
  EXPECT_TRUE(complete(id, *parts, "mine"));
  store_->plant("big", "them");
  EXPECT_EQ(code_of(complete(id, *parts, "mine")), ErrorCode::kExists);
}

TEST_F(S3ClientTest, AChecksumOfPartsIsNoneOfTheObject) {
  const auto answer_with = [&](const std::string& checksum, const std::string& type) {
    HttpResponse answer{.status = 200,
                        .fields = {{"content-length", "3"}, {"x-amz-checksum-crc32c", checksum}}};
    if (!type.empty()) answer.fields.push_back({"x-amz-checksum-type", type});
    answer_always(answer);
    return client_->head("key")->crc32c;
  };
  EXPECT_EQ(answer_with("4waSgw==", "FULL_OBJECT"), 0xe3069283U);
  EXPECT_EQ(answer_with("4waSgw==", ""), 0xe3069283U);
  EXPECT_EQ(answer_with("4waSgw==", "COMPOSITE"), std::nullopt);
  EXPECT_EQ(answer_with("4waSgw==-2", ""), std::nullopt);
}

TEST_F(S3ClientTest, AnotherRangeThanTheOneAskedForIsNotTaken) {
  store_->plant("key", random_text(100));
  std::array<std::byte, 10> some{};
  const auto get_with = [&](int status, const std::string& range, std::size_t bytes = 10) {
    store_->set_hook([=](const HttpRequest& /*request*/) {
      HttpResponse answer{.status = status, .into_bytes = bytes};
      if (!range.empty()) answer.fields.push_back({"content-range", range});
      return Result<HttpResponse>(answer);
    });
    return client_->get("key", 20, some);
  };
  EXPECT_TRUE(get_with(206, "bytes 20-29/100"));
  for (const char* range : {"", "bytes 21-30/100", "bytes 20-28/100", "bytes 20-24/25"}) {
    EXPECT_EQ(code_of(get_with(206, range)), ErrorCode::kTimeout) << range;
  }
  EXPECT_EQ(code_of(get_with(206, "bytes 21-29/100", 9)), ErrorCode::kTimeout);
  EXPECT_EQ(code_of(get_with(206, "bytes 20-29/100", 9)), ErrorCode::kTimeout);
  EXPECT_EQ(code_of(get_with(200, "")), ErrorCode::kTimeout) << "the beginning of the object";
}

}  // namespace
}  // namespace deepfreeze
