#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/fail_point.h"
#include "base/try.h"
#include "cli/test_run.h"
#include "deepfreeze/deepfreeze.h"
#include "packed/packed_fixture.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

class ForkVerb : public testing::Test {
 protected:
  ForkVerb() {
    for (const std::uint64_t step : {1U, 2U}) {
      run_.save({.step = step, .ranks = {{f32_tensor("w", {static_cast<float>(step)})}}});
    }
  }
  ~ForkVerb() override {
    fail_points::disarm();
    fs::remove_all(place("a"));
    fs::remove_all(place("b"));
    fs::remove_all("/dev/shm/" + fs::path(place("c")).filename().string());
  }
  [[nodiscard]] std::string place(const std::string& name) const {
    return run_.text() + "-" + name;
  }
  static float value_in(const std::string& run) {
    float value = 0;
    auto opened = Checkpointer::open(run, {});
    EXPECT_TRUE(opened) << opened.error().message();
    const std::vector<RestoreTarget> targets = {
        {"w", std::as_writable_bytes(std::span(&value, 1))}};
    const auto report = restore_newest(*opened, targets);
    EXPECT_TRUE(report) << report.error().message();
    return value;
  }
  [[nodiscard]] static Status save(const std::string& run, std::uint64_t step, float value) {
    auto opened = Checkpointer::open(run, {});
    float found = 0;
    const std::vector<RestoreTarget> targets = {
        {"w", std::as_writable_bytes(std::span(&found, 1))}};
    if (!restore_newest(*opened, targets)) return fail(ErrorCode::kInternal, "no restore");
    const auto handle =
        opened->save({.step = step,
                      .tensors = {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {1}},
                                   .data = std::as_bytes(std::span(&value, 1))}}});
    if (!handle) return std::unexpected(handle.error());
    return (*handle)->wait(Level::kDurable);
  }

  RunFixture run_;
};

TEST_F(ForkVerb, BeginsARunThatOutlivesItsParent) {
  const Answer answer = call_json({"fork", run_.text() + "@1", place("a")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["bytes_copied"], 0);
  EXPECT_EQ(answer.json()["step"], 1);
  ASSERT_EQ(call({"fork", place("a"), place("b")}).code, 0) << "a fork of a fork";
  fs::remove_all(run_.path());
  fs::remove_all(place("a"));
  EXPECT_EQ(call({"verify", "--deep", place("b")}).code, 0);
  EXPECT_EQ(value_in(place("b")), 1);
  ASSERT_TRUE(save(place("b"), 5, 7));
  EXPECT_EQ(value_in(place("b")), 7);
  EXPECT_EQ(call({"verify", "--deep", place("b")}).code, 0);
  EXPECT_TRUE(call({"log", place("b")}).says("-a"));
}

TEST_F(ForkVerb, CopiesToAnotherFileSystem) {
  const std::string far = "/dev/shm/" + fs::path(place("c")).filename().string();
  struct stat here = {};
  struct stat there = {};
  ASSERT_EQ(::stat(run_.text().c_str(), &here), 0);
  ASSERT_EQ(::stat("/dev/shm", &there), 0);
  if (here.st_dev == there.st_dev) {
    GTEST_SKIP() << "LEFT OUT: /dev/shm is not a file system of its own here; ForkTest copies, too";
  }
  const Answer answer = call_json({"fork", run_.text(), far});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["bytes_copied"], answer.json()["bytes"]);
  EXPECT_EQ(call({"verify", "--deep", far}).code, 0);
  EXPECT_EQ(value_in(far), 2);
}

// Of a tier that holds files packed: a run's own directory has plain ones.
TEST_F(ForkVerb, UnpacksFiles) {
  const std::vector<float> values(100'000, 0.25F);
  const Manifest manifest = run_.save({.step = 3, .ranks = {{f32_tensor("w", values)}}});
  const fs::path file = run_.file_path(manifest, manifest.files.front().name);
  std::ifstream in(file, std::ios::binary);
  const std::string plain((std::istreambuf_iterator<char>(in)), {});
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      << as_text(packed_bytes_of(data_file_of(std::as_bytes(std::span(plain)))));
  ASSERT_LT(fs::file_size(file), plain.size());
  const Answer answer = call_json({"fork", run_.text(), place("a")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["bytes_copied"], plain.size());
  const fs::path forked = fs::path(list_checkpoints(place("a"))->front().path) / file.filename();
  std::ifstream out(forked, std::ios::binary);
  EXPECT_TRUE(std::string((std::istreambuf_iterator<char>(out)), {}) == plain);
}

TEST_F(ForkVerb, RefusesARunThatHasCheckpoints) {
  ASSERT_EQ(call({"fork", run_.text(), place("a")}).code, 0);
  const Answer again = call({"fork", run_.text(), place("a")});
  EXPECT_NE(again.code, 0);
  EXPECT_NE(again.err.find("choose a new directory"), std::string::npos) << again.err;
  EXPECT_EQ(value_in(place("a")), 2);
}

TEST_F(ForkVerb, AFailureLeavesNoCheckpointAndTheNextForkWorks) {
  for (const char* point :
       {"fork.file", "fork.synced", "commit.manifest_written", "commit.directory_synced"}) {
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error@1"));
    EXPECT_NE(call({"fork", run_.text(), place("a")}).code, 0) << point;
    fail_points::disarm();
    EXPECT_TRUE(list_checkpoints(place("a"))->empty()) << point;
  }
  ASSERT_EQ(call({"fork", run_.text(), place("a")}).code, 0);
  EXPECT_EQ(value_in(place("a")), 2);
}

TEST_F(ForkVerb, DoesNotTakeAFileThatIsNotTheManifests) {
  const CheckpointInfo newest = list_checkpoints(run_.path())->front();
  const fs::path file = fs::path(newest.path) / "rank-00000-of-00001-0-of-1.safetensors";
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out).seekp(100).put('!');
  const Answer answer = call({"fork", run_.text(), place("a")});
  EXPECT_NE(answer.code, 0);
  EXPECT_NE(answer.err.find("is not the file"), std::string::npos) << answer.err;
}

}  // namespace
}  // namespace deepfreeze
