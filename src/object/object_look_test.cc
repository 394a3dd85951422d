#include "object/object_look.h"

#include "object/fake_store.h"
#include "object/object_tier.h"

namespace deepfreeze {
namespace {

class ObjectLookTest : public FakeStoreTest {
 protected:
  ObjectLookTest() {
    for (const char* key :
         {"deepfreeze.json", "step-1/manifest.json", "step-1/rank", "step-1/", "a/b/c"}) {
      store_->plant(key, key);
    }
  }
  static std::vector<std::string> names_in(Vfs& vfs, std::string_view directory) {
    std::vector<std::string> names;
    const auto entries = vfs.list(directory).value();
    for (const DirEntry& entry : entries) {
      names.push_back(entry.name + (entry.is_directory ? "/" : ""));
    }
    return names;
  }
  std::unique_ptr<Vfs> look() { return view_->look().value(); }
  // The requests that reading this file costs.
  std::size_t cost_of(Vfs& vfs, const char* name, const std::string& wanted) {
    const std::size_t before = store_->request_count();
    EXPECT_EQ(read_file(vfs, name, 1'000).value_or("unreadable"), wanted);
    return store_->request_count() - before;
  }

  std::unique_ptr<Vfs> view_ = make_object_view(client_);
};

using Names = std::vector<std::string>;

TEST_F(ObjectLookTest, HasTheDirectoriesOfOneMoment) {
  const auto seen = look();
  const std::size_t before = store_->request_count();
  store_->plant("later", "x");
  EXPECT_EQ(names_in(*seen, ""), (Names{"a/", "deepfreeze.json", "step-1/"}));
  EXPECT_EQ(names_in(*seen, "step-1"), (Names{"manifest.json", "rank"}));
  EXPECT_EQ(names_in(*seen, "a"), Names{"b/"});
  EXPECT_EQ(code_of(seen->list("none")), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(seen->open_read("later", Access::kBuffered)), ErrorCode::kNotFound);
  EXPECT_EQ(seen->path_of("a"), view_->path_of("a"));
  EXPECT_EQ(store_->request_count(), before);
  EXPECT_EQ(names_in(*look(), "").size(), 4U);
}

TEST_F(ObjectLookTest, AnEmptyPlaceIsAnEmptyDirectory) {
  for (const std::string& key : store_->keys()) ASSERT_TRUE(client_->remove(key));
  EXPECT_EQ(names_in(*look(), ""), Names{});
}

TEST_F(ObjectLookTest, ReadsASmallObjectOnce) {
  const auto first = look();
  EXPECT_EQ(cost_of(*first, "step-1/manifest.json", "step-1/manifest.json"), 1U);
  EXPECT_EQ(cost_of(*first, "step-1/manifest.json", "step-1/manifest.json"), 0U);
  EXPECT_EQ(cost_of(*look(), "step-1/manifest.json", "step-1/manifest.json"), 0U);
  store_->plant("step-1/manifest.json", "another text");
  EXPECT_EQ(cost_of(*look(), "step-1/manifest.json", "another text"), 1U);
}

TEST_F(ObjectLookTest, ALargeObjectIsTheViews) {
  const std::string large = random_text(kSmallObjectBytesMax + 1);
  store_->plant("large", large);
  const auto seen = look();
  for (int round = 0; round < 2; ++round) {
    const std::size_t before = store_->request_count();
    EXPECT_EQ(read_file(*seen, "large", large.size()).value(), large);
    EXPECT_EQ(store_->request_count() - before, 2U);  // its size, its bytes
  }
}

// Else it would be kept as long as the view.
TEST_F(ObjectLookTest, ATextThatIsDamagedOnTheWayIsReadAgain) {
  const auto seen = look();
  store_->fail_at(store_->request_count(), S3Fault::kFlippedAnswer);
  EXPECT_EQ(cost_of(*seen, "step-1/rank", "step-1/rank"), 2U);
}

TEST_F(ObjectLookTest, AnObjectOfAnotherSizeThanTheListedOneIsGone) {
  const auto seen = look();
  store_->plant("step-1/rank", "short");
  EXPECT_EQ(code_of(seen->open_read("step-1/rank", Access::kBuffered)), ErrorCode::kGone);
  EXPECT_EQ(cost_of(*look(), "step-1/rank", "short"), 1U);
}

TEST_F(ObjectLookTest, ChangesNothing) {
  const auto seen = look();
  EXPECT_EQ(code_of(seen->remove_file("step-1/rank")), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(seen->sync_dir("")), ErrorCode::kUnsupported);
}

TEST(SmallObjects, AreForgottenBeforeTheyAreTooMany) {
  SmallObjects small;
  const std::string text(kSmallObjectBytesMax, 'x');
  for (std::size_t i = 0; i < kSmallObjectsBytesMax / text.size(); ++i) {
    small.keep(fmt::format("{}", i), "tag", text);
  }
  EXPECT_EQ(small.find("0", "tag"), text);
  EXPECT_EQ(small.find("0", "other"), std::nullopt);
  small.keep("0", "other", text);  // in its own place
  EXPECT_EQ(small.find("1", "tag"), text);
  small.keep("more", "tag", "x");
  EXPECT_EQ(small.find("1", "tag"), std::nullopt);
  EXPECT_EQ(small.find("more", "tag"), "x");
}

}  // namespace
}  // namespace deepfreeze
