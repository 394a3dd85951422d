// A checkpoint in an object store, checked without a look at its data.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

#include "object/object_tier.h"
#include "restore/run_fixture.h"
#include "restore/shard_file.h"
#include "support/code_of.h"
#include "support/fake_s3.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kTensorBytes = 200'000;  // three blocks and a part of one

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// A checkpoint of two ranks in a directory, and a copy of all its files in a store.
class VerifyHeaders : public testing::Test {
 protected:
  void SetUp() override {
    manifest_ = run_.save({.step = 3,
                           .ranks = {{random_tensor("a", DType::kU8, {kTensorBytes}, 1)},
                                     {random_tensor("b", DType::kU8, {kTensorBytes}, 2)}},
                           .tree = ""});
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run_.path())) {
      if (!entry.is_regular_file()) continue;
      store_->plant(std::filesystem::relative(entry, run_.path()).string(), text_of(entry.path()));
    }
  }
  [[nodiscard]] HeaderCheck check(bool one_node_only = false) {
    return must(verify_headers(*view_, manifest_, one_node_only));
  }
  [[nodiscard]] std::string key(std::size_t file) const {
    return attempt_path(manifest_, manifest_.files[file].name);
  }
  void replace(std::size_t file, std::string bytes) { store_->plant(key(file), std::move(bytes)); }
  [[nodiscard]] std::string bytes_of(std::size_t file) const {
    return store_->contents(key(file)).value_or("");
  }
  [[nodiscard]] std::size_t requests(std::string_view method) const {
    const std::vector<std::string> log = store_->log();
    return static_cast<std::size_t>(std::ranges::count_if(log, [&](const std::string& line) {
      return line.starts_with(method) && line.ends_with(".safetensors");
    }));
  }
  // The only fault, which is one of the second rank's file.
  [[nodiscard]] std::string cause() {
    const HeaderCheck found = check();
    EXPECT_EQ(found.faults.size(), 1U);
    if (found.faults.size() != 1) return "";
    EXPECT_EQ(found.faults[0].file, manifest_.files[1].name);
    EXPECT_FALSE(found.faults[0].unread);
    return found.faults[0].cause;
  }

  RunFixture run_;
  Manifest manifest_;
  FakeTime time_;
  std::shared_ptr<FakeS3> store_ = std::make_shared<FakeS3>(time_);
  std::unique_ptr<Vfs> view_ =
      make_object_view(std::make_shared<S3Client>(FakeS3::settings(store_, time_)));
};

TEST_F(VerifyHeaders, AWholeCopyIsGoodAndItsDataIsNotRead) {
  const HeaderCheck found = check();
  EXPECT_TRUE(found.faults.empty());
  EXPECT_TRUE(found.without_checksum.empty());
  // Each file: its size and checksum, the size of its header, its header.
  EXPECT_EQ(requests("HEAD"), 2U);
  EXPECT_EQ(requests("GET"), 4U);
}

TEST_F(VerifyHeaders, AnObjectWithOtherDataOfTheSameSizeIsAFault) {
  for (const std::size_t from_end : {std::size_t{1}, std::size_t{kTensorBytes}}) {
    std::string bytes = bytes_of(1);
    bytes[bytes.size() - from_end] ^= 1;
    replace(1, std::move(bytes));
    EXPECT_NE(cause().find("checksum, as the store keeps it"), std::string::npos) << cause();
  }
}

TEST_F(VerifyHeaders, AnObjectOfAnotherSizeIsAFault) {
  replace(1, bytes_of(1).substr(0, manifest_.files[1].bytes - 1));
  EXPECT_NE(cause().find("the manifest says"), std::string::npos) << cause();
  replace(1, text_of(run_.file_path(manifest_, manifest_.files[1].name)) + "x");
  EXPECT_NE(cause().find("the manifest says"), std::string::npos) << cause();
}

TEST_F(VerifyHeaders, AnObjectThatIsMissingIsAFault) {
  must(view_->remove_file(key(1)));
  EXPECT_NE(cause().find("missing"), std::string::npos) << cause();
}

TEST_F(VerifyHeaders, AnObjectWithAnotherHeaderIsAFault) {
  replace(1, bytes_of(0));
  EXPECT_NE(cause().find("header"), std::string::npos) << cause();
}

TEST_F(VerifyHeaders, AStoreWithoutChecksumsIsToldAndNoFault) {
  store_->forget_checksums();
  const HeaderCheck found = check();
  EXPECT_TRUE(found.faults.empty());
  EXPECT_EQ(found.without_checksum.size(), 2U);
  std::string bytes = bytes_of(1);
  bytes.back() ^= 1;
  replace(1, std::move(bytes));
  EXPECT_TRUE(check().faults.empty()) << "nothing but the data tells";
}

TEST_F(VerifyHeaders, AStoreIsBelievedThatTellsTheFormerChecksumOfRottenBytes) {
  ASSERT_TRUE(store_->flip_bit(key(1), manifest_.files[1].bytes * 8 - 1));
  EXPECT_TRUE(check().faults.empty());
  EXPECT_EQ(must(verify_attempt(*view_, manifest_, {})).size(), 1U);
}

TEST_F(VerifyHeaders, ChecksumsOfOneNodesFilesAreCompared) {
  manifest_.files.erase(manifest_.files.begin());  // the files of another node
  EXPECT_TRUE(check(/*one_node_only=*/true).faults.empty());
  std::string bytes = store_->contents(key(0)).value_or("");
  bytes.back() ^= 1;
  store_->plant(key(0), std::move(bytes));
  EXPECT_EQ(check(/*one_node_only=*/true).faults.size(), 1U);
}

TEST_F(VerifyHeaders, FaultsOfAllFilesTogetherShow) {
  manifest_.files.pop_back();
  const HeaderCheck found = check();
  ASSERT_EQ(found.faults.size(), 1U);
  EXPECT_NE(found.faults[0].cause.find("lists no file 0 of rank 1"), std::string::npos);
}

TEST_F(VerifyHeaders, AStoreThatFailsIsAnErrorAndNoFault) {
  store_->set_hook([](const HttpRequest& /*request*/) {
    return Result<HttpResponse>(FakeS3::error(403, "No"));
  });
  EXPECT_FALSE(verify_headers(*view_, manifest_).has_value());
}

TEST_F(VerifyHeaders, ADirectoryKeepsNoChecksums) {
  const HeaderCheck found = must(verify_headers(run_.vfs(), manifest_));
  EXPECT_TRUE(found.faults.empty());
  EXPECT_EQ(found.without_checksum.size(), 2U);
}

}  // namespace
}  // namespace deepfreeze
