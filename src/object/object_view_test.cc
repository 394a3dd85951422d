#include <algorithm>

#include "object/fake_store.h"
#include "object/object_tier.h"

namespace deepfreeze {
namespace {

class ObjectViewTest : public FakeStoreTest {
 protected:
  // "name" or "name/", sorted.
  std::vector<std::string> list(std::string_view name) {
    const auto entries = view_->list(name);
    if (!entries) return {message_of(entries)};
    std::vector<std::string> names;
    for (const DirEntry& entry : *entries)
      names.push_back(entry.name + (entry.is_directory ? "/" : ""));
    std::ranges::sort(names);
    return names;
  }

  std::unique_ptr<Vfs> view_ = make_object_view(client_);
};

using Names = std::vector<std::string>;

TEST_F(ObjectViewTest, ListsLikeADirectory) {
  EXPECT_EQ(list(""), Names{});
  for (const char* key : {"run.json", "step-1/a", "step-1/b", "step-2/a", "step-2/"}) {
    store_->plant(key, "x");
  }
  EXPECT_EQ(list(""), (Names{"run.json", "step-1/", "step-2/"}));
  EXPECT_EQ(list("step-1"), (Names{"a", "b"}));
  EXPECT_EQ(list("step-2"), (Names{"a"}));
  EXPECT_EQ(code_of(view_->list("step-3")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(view_->list("step")), ErrorCode::kNotFound);
  ASSERT_TRUE(view_->remove_file("step-1/a"));
  ASSERT_TRUE(view_->remove_file("step-1/b"));
  EXPECT_EQ(code_of(view_->list("step-1")), ErrorCode::kNotFound);
}

TEST_F(ObjectViewTest, ReadsOnlyWhatIsAskedFor) {
  const std::string text = random_text(10'000);
  store_->plant("file", text);
  const auto file = view_->open_read("file", Access::kDirect).value();
  EXPECT_EQ(file->size().value(), text.size());
  EXPECT_EQ(file->access(), Access::kBuffered);
  std::string ranges;
  store_->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    const auto found = std::ranges::find(request.fields, "range", &HttpField::name);
    if (found != request.fields.end()) ranges += found->value + ";";
    return std::nullopt;
  });
  std::vector<std::byte> into(4096);
  EXPECT_EQ(file->read_at(4096, into).value(), 4096U);
  EXPECT_TRUE(std::ranges::equal(into, bytes_of(text).subspan(4096, 4096)));
  EXPECT_EQ(file->read_at(8192, into).value(), text.size() - 8192);
  EXPECT_EQ(file->read_at(10'000, into).value(), 0U);
  EXPECT_EQ(file->read_at(20'000, into).value(), 0U);
  EXPECT_EQ(ranges, "bytes=4096-8191;bytes=8192-9999;");
}

TEST_F(ObjectViewTest, AMissingFileIsNotFound) {
  EXPECT_EQ(code_of(view_->open_read("file", Access::kBuffered)), ErrorCode::kNotFound);
  store_->plant("file", "text");
  const auto file = view_->open_read("file", Access::kBuffered).value();
  ASSERT_TRUE(view_->remove_file("file"));
  EXPECT_TRUE(view_->remove_file("file"));
  std::vector<std::byte> into(4);
  EXPECT_EQ(code_of(file->read_at(0, into)), ErrorCode::kNotFound);
}

TEST_F(ObjectViewTest, HasNoDirectoriesToMakeOrSync) {
  EXPECT_TRUE(view_->make_dir("step-1"));
  EXPECT_TRUE(view_->sync_dir("step-1"));
  EXPECT_TRUE(view_->sync_dir(""));
  EXPECT_TRUE(view_->remove_dir("step-1"));
  EXPECT_EQ(code_of(view_->create("file", Access::kBuffered)), ErrorCode::kUnsupported);
  EXPECT_EQ(store_->request_count(), 0U);
  EXPECT_EQ(view_->path_of(""), "s3://bucket/runs/a");
  EXPECT_EQ(view_->path_of("step-1/a"), "s3://bucket/runs/a/step-1/a");
}

TEST_F(ObjectViewTest, ARenameNeverLeavesNeitherName) {
  store_->plant("from", "text");
  for (const auto& [fault, leaves] :
       std::vector<std::pair<std::string, Names>>{{"PUT", {"from"}}, {"DELETE", {"from", "to"}}}) {
    store_->set_hook(
        [method = fault](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
          if (request.method != method) return std::nullopt;
          return FakeS3::error(403, "AccessDenied");
        });
    EXPECT_FALSE(view_->rename_no_replace("from", "to"));
    EXPECT_EQ(store_->keys(), leaves);
  }
  store_->set_hook({});
  EXPECT_TRUE(view_->rename_no_replace("from", "to")) << "the same bytes are there";
  EXPECT_EQ(store_->keys(), Names{"to"});
  for (const char* other : {"others", "else"}) {
    store_->plant("from", "text");
    store_->plant("to", other);
    EXPECT_EQ(code_of(view_->rename_no_replace("from", "to")), ErrorCode::kExists);
    EXPECT_EQ(store_->keys(), (Names{"from", "to"}));
    EXPECT_EQ(store_->contents("to"), other);
  }
  EXPECT_TRUE(view_->rename_replacing("from", "to"));
  EXPECT_EQ(store_->keys(), Names{"to"});
  EXPECT_EQ(store_->contents("to"), "text");
  EXPECT_EQ(code_of(view_->rename_no_replace("from", "other")), ErrorCode::kNotFound);
  EXPECT_TRUE(view_->rename_no_replace("to", "from"));
  EXPECT_EQ(store_->keys(), Names{"from"});
}

TEST_F(ObjectViewTest, ARenameCopiesNoFlippedBit) {
  store_->plant("from", "text");
  store_->fail_at(1, S3Fault::kFlippedAnswer);
  EXPECT_EQ(code_of(view_->rename_no_replace("from", "to")), ErrorCode::kIo);
  EXPECT_EQ(store_->keys(), Names{"from"});
}

TEST_F(ObjectViewTest, ARenameOfALargeFileIsRefused) {
  HttpResponse large{.status = 200, .fields = {{"content-length", std::to_string(kPartBytes + 1)}}};
  answer_next(large);
  EXPECT_EQ(code_of(view_->rename_no_replace("from", "to")), ErrorCode::kUnsupported);
  EXPECT_EQ(store_->request_count(), 0U);
}

}  // namespace
}  // namespace deepfreeze
