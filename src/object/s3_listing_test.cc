#include <fmt/format.h>

#include "object/fake_store.h"

namespace deepfreeze {
namespace {

class S3ListingTest : public FakeStoreTest {
 protected:
  void SetUp() override {
    for (const char* key : {"a", "b+c", "dir/one", "dir/two", "dir/sub/three", "z"}) {
      store_->plant(key, key);
    }
  }
  static std::vector<std::string> keys_of(const Listing& listing) {
    std::vector<std::string> keys;
    for (const ListedObject& object : listing.objects) keys.push_back(object.key);
    return keys;
  }
  static HttpResponse page(const std::string& inside) {
    HttpResponse answer{.status = 200};
    answer.body =
        "<ListBucketResult><EncodingType>url</EncodingType>" + inside + "</ListBucketResult>";
    return answer;
  }
};

using Names = std::vector<std::string>;

TEST_F(S3ListingTest, GivesAllPagesOfAnySize) {
  for (std::size_t size = 1; size < 8; ++size) {
    store_->set_page_size(size);
    const auto all = client_->list("", false);
    ASSERT_TRUE(all) << message_of(all);
    EXPECT_EQ(keys_of(*all), (Names{"a", "b+c", "dir/one", "dir/sub/three", "dir/two", "z"}));
    EXPECT_EQ(all->objects[2].bytes, 7U);
    EXPECT_FALSE(all->objects[2].etag.empty());
    const auto root = client_->list("", true);
    ASSERT_TRUE(root);
    EXPECT_EQ(keys_of(*root), (Names{"a", "b+c", "z"}));
    EXPECT_EQ(root->directories, Names{"dir"});
    const auto below = client_->list("dir/", true);
    ASSERT_TRUE(below);
    EXPECT_EQ(keys_of(*below), (Names{"dir/one", "dir/two"}));
    EXPECT_EQ(below->directories, Names{"dir/sub"});
  }
  EXPECT_TRUE(client_->list("none/", true)->objects.empty());
}

TEST_F(S3ListingTest, OtherRunsOfTheBucketAreNotSeen) {
  settings_.place.prefix = "runs/b";
  S3Client other(settings_);
  EXPECT_TRUE(other.list("", false)->objects.empty());
  settings_.place.prefix = "";
  S3Client whole(settings_);
  EXPECT_EQ(whole.list("", false)->objects.front().key, "runs/a/a");
}

TEST_F(S3ListingTest, PagesThatGoRoundAreAnError) {
  const std::string more = "<IsTruncated>true</IsTruncated>";
  answer_always(page(more + "<NextContinuationToken>x</NextContinuationToken>"));
  const auto listed = client_->list("", false);
  EXPECT_EQ(code_of(listed), ErrorCode::kIo);
  EXPECT_NE(message_of(listed).find("go round"), std::string::npos);
  answer_always(page(more));
  const auto endless = client_->list("", false);
  EXPECT_EQ(code_of(endless), ErrorCode::kIo);
  EXPECT_NE(message_of(endless).find("does not name the next"), std::string::npos);
}

TEST_F(S3ListingTest, AListingHasABound) {
  std::string inside = "<IsTruncated>true</IsTruncated>";
  constexpr std::size_t kElements = 90'000;
  for (std::size_t i = 0; i < kElements; ++i) inside += "<x/>";
  std::size_t pages = 0;
  store_->set_hook([&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
    return page(inside + fmt::format("<NextContinuationToken>{}</NextContinuationToken>", ++pages));
  });
  const auto listed = client_->list("", false);
  EXPECT_EQ(code_of(listed), ErrorCode::kIo);
  EXPECT_NE(message_of(listed).find("more than 1000000 keys"), std::string::npos);
  EXPECT_LE(pages, kListKeysMax / kElements + 1);
}

TEST_F(S3ListingTest, AKeyThatWasNotAskedForOrThatHasNoSizeIsAnError) {
  for (const char* inside : {"<Contents><Key>runs%2Fb%2Fk</Key><Size>1</Size></Contents>",
                             "<Contents><Key>runs%2Fa%2F%</Key><Size>1</Size></Contents>",
                             "<Contents><Key>runs%2Fa%2Fk</Key></Contents>",
                             "<CommonPrefixes><Prefix>x</Prefix></CommonPrefixes>"}) {
    answer_always(page(inside));
    EXPECT_EQ(code_of(client_->list("", false)), ErrorCode::kIo) << inside;
  }
}

TEST_F(S3ListingTest, OddAnswersToAListingOfOneLevel) {
  answer_next(page("<CommonPrefixes><Prefix>runs%2Fa%2Fdir%2F</Prefix></CommonPrefixes>"));
  EXPECT_TRUE(client_->list("dir/", true)->directories.empty());
  answer_next(page("<CommonPrefixes><Prefix>runs%2Fa%2Fdi</Prefix></CommonPrefixes>"));
  EXPECT_EQ(code_of(client_->list("dir/", true)), ErrorCode::kIo);
}

TEST_F(S3ListingTest, AStoreNeedNotEncodeKeys) {
  HttpResponse answer{.status = 200};
  answer.body =
      "<ListBucketResult><Contents><Key>runs/a/50%+</Key><Size>1</Size></Contents>"
      "</ListBucketResult>";
  answer_next(answer);
  EXPECT_EQ(keys_of(*client_->list("", false)), Names{"50%+"});
}

TEST_F(S3ListingTest, APageThatIsNoneIsAskedForAgain) {
  for (const char* body :
       {"", "<ListBucketResult>", "<Other/>", "<!DOCTYPE a><ListBucketResult/>"}) {
    HttpResponse answer{.status = 200};
    answer.body = body;
    answer_next(answer);
    EXPECT_EQ(client_->list("", false)->objects.size(), 6U) << body;
  }
}

TEST_F(S3ListingTest, OpenUploadsAreFoundPageByPage) {
  for (const char* key : {"step-1/a", "step-1/b", "step-2/a", "other"}) store_->plant_upload(key);
  for (std::size_t size = 1; size < 6; ++size) {
    store_->set_page_size(size);
    const auto uploads = client_->open_uploads("step-1/");
    ASSERT_TRUE(uploads) << message_of(uploads);
    ASSERT_EQ(uploads->size(), 2U);
    EXPECT_EQ(uploads->front().key, "step-1/a");
    EXPECT_EQ(client_->open_uploads("")->size(), 4U);
  }
  const auto uploads = client_->open_uploads("");
  for (const OpenUpload& upload : *uploads) {
    EXPECT_TRUE(client_->abort(upload.key, upload.upload_id));
  }
  EXPECT_EQ(store_->open_uploads(), 0U);
}

// As a gateway answers it. A place would else pass for empty, and a restore take an older step.
TEST_F(S3ListingTest, ANotFoundIsNoEmptyPlace) {
  store_->set_hook([](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
    return HttpResponse{.status = 404};
  });
  EXPECT_EQ(code_of(client_->list("", true)), ErrorCode::kIo);
}

}  // namespace
}  // namespace deepfreeze
