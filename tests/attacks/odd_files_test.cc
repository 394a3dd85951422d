// A file of a run is replaced by something else: a link out of the run, a directory, a FIFO, a
// socket, a device. No reader follows it or waits for it, no collector goes through it, and the
// good checkpoint beside it is still found.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "attacks/odd_file.h"
#include "base/log.h"
#include "cli/test_run.h"
#include "deepfreeze/checkpointer.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "restore/run_fixture.h"
#include "restore/snapshot.h"
#include "support/deny_syscall.h"
#include "support/scoped_dir.h"

namespace deepfreeze {

void PrintTo(const OddFileCase& odd, std::ostream* out) { *out << odd.name; }

namespace odd_files_test {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kSecondsMax = 120;  // a reader that waits for a FIFO would wait for ever

FixtureSave save_of(std::uint64_t step) {
  return {.step = step,
          .ranks = {{f32_tensor("w", {static_cast<float>(step), 2, 3})}},
          .tree = {},
          .annotations = {}};
}

class OddFiles : public testing::TestWithParam<OddFileCase> {
 protected:
  OddFiles() {
    ::alarm(kSecondsMax);
    set_log_sink([](std::string_view) {});
    good_ = run_.save(save_of(1));
    victim_ = run_.save(save_of(2));
    fs::create_directory(outside_);
    std::error_code code;
    fs::copy_file(part_of(good_), outside_ / "bystander", code);
  }
  // Devices want a right that not everybody has; all else anybody can make.
  void SetUp() override {
    if (GetParam().kind != OddFile::kDevice) return;
    const fs::path probe = outside_ / "probe" / "device";
    fs::create_directories(probe.parent_path());
    std::ofstream(probe) << "x";
    const bool made = replace_by(GetParam().kind, probe, outside_);
    fs::remove_all(probe.parent_path());
    fs::remove(outside_ / "device");
    if (!made) GTEST_SKIP() << "LEFT OUT: this machine does not let us make a device";
  }
  ~OddFiles() override {
    set_log_sink({});
    ::alarm(0);
  }

  [[nodiscard]] fs::path part_of(const Manifest& manifest) const {
    return run_.file_path(manifest, manifest.files.front().name);
  }
  [[nodiscard]] fs::path directory_of(const Manifest& manifest) const {
    return part_of(manifest).parent_path();
  }
  void replace(const fs::path& path) {
    ASSERT_TRUE(replace_by(GetParam().kind, path, outside_)) << path;
  }
  [[nodiscard]] static bool blames(const Error& error, const fs::path& path) {
    return error.message().contains(path.string()) && error.message().contains(GetParam().cause);
  }

  // Restores as a training does when it starts.
  void expect_restored(std::uint64_t step) {
    auto checkpointer = must(Checkpointer::open(run_.path(), {}));
    std::vector<float> values(3);
    const RestoreTarget target{.key = "w", .into = std::as_writable_bytes(std::span(values))};
    const auto report = restore_newest(checkpointer, std::span(&target, 1));
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->restored.step, step);
    EXPECT_EQ(values.front(), static_cast<float>(step));
  }
  void expect_outside_untouched() const {
    EXPECT_TRUE(fs::exists(outside_ / "bystander"));
    EXPECT_EQ(std::distance(fs::directory_iterator(outside_), {}), 2);
  }

  RunFixture run_;
  ScopedDir elsewhere_;
  fs::path outside_ = elsewhere_.path() / "outside";
  Manifest good_;
  Manifest victim_;
};

TEST_P(OddFiles, InPlaceOfADataFile) {
  replace(part_of(victim_));
  const auto opened = Snapshot::open(run_.vfs(), victim_);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(blames(opened.error(), part_of(victim_))) << opened.error().message();
  EXPECT_NE(call({"verify", run_.text() + "@2"}).code, 0);
  EXPECT_NE(call({"export", run_.text() + "@2", (outside_ / "new").string()}).code, 0);
  expect_restored(1);
  expect_outside_untouched();
}

// In a sandbox that forbids openat2 it is O_NOFOLLOW, at each component, that holds.
TEST_P(OddFiles, InPlaceOfADataFileOrAnAttemptWithoutOpenat2) {
  replace(part_of(victim_));
  fs::rename(directory_of(good_), outside_ / "good");
  fs::create_directory_symlink(outside_ / "good", directory_of(good_));
  const bool ran = run_with_denied({.number = SYS_openat2, .os_errno = EPERM}, [this] {
    for (const Manifest& manifest : {good_, victim_}) {
      const auto opened = Snapshot::open(run_.vfs(), manifest);
      ASSERT_FALSE(opened.has_value());
      EXPECT_EQ(opened.error().code(), ErrorCode::kIo) << opened.error().message();
    }
    EXPECT_FALSE(remove_attempt(run_.vfs(), {1, good_.point.attempt_id}).has_value());
  });
  if (!ran) GTEST_SKIP() << "LEFT OUT: this machine allows no seccomp filter";
  EXPECT_TRUE(fs::exists(outside_ / "good" / "manifest.json"));
}

// One such file hides nothing of the other checkpoints.
TEST_P(OddFiles, InPlaceOfADataFileIsAFaultAmongOthers) {
  flip_bit(part_of(good_), 8 * kPageBytes);
  replace(part_of(victim_));
  const Answer answer = call_json({"verify", run_.text()});
  EXPECT_EQ(answer.code, 1) << answer.out << answer.err;
  ASSERT_EQ(answer.json()["attempts"].size(), 2U) << answer.out;
  const auto blocks = answer.json()["attempts"][0]["faults"][0]["blocks"];
  EXPECT_EQ(blocks.size(), 1U);
  const std::string cause = answer.json()["attempts"][1]["faults"][0]["cause"];
  EXPECT_TRUE(cause.contains(GetParam().cause)) << cause;
}

// Between the look at its header and the read of its data.
TEST_P(OddFiles, InPlaceOfADataFileThatWasOpened) {
  const auto snapshot = must(Snapshot::open(run_.vfs(), victim_));
  replace(part_of(victim_));
  std::vector<std::byte> bytes(3 * sizeof(float));
  const ReadTarget target{.key = "w", .into = bytes};
  const Status read = snapshot->read(std::span(&target, 1), {.thread_count = 1});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(blames(read.error(), part_of(victim_))) << read.error().message();
  expect_outside_untouched();
}

TEST_P(OddFiles, InPlaceOfAManifest) {
  const fs::path path = run_.file_path(victim_, "manifest.json");
  replace(path);
  const auto listing = must(read_run(run_.vfs()));
  ASSERT_EQ(listing.attempts.size(), 2U);
  ASSERT_TRUE(listing.attempts[1].fault.has_value());
  EXPECT_EQ(listing.attempts[1].fault->code(), ErrorCode::kIo);
  EXPECT_TRUE(blames(*listing.attempts[1].fault, path)) << listing.attempts[1].fault->message();
  EXPECT_EQ(call({"verify", run_.text()}).code, 1);
  EXPECT_TRUE(call({"ls", run_.text()}).says(GetParam().cause));
  expect_restored(1);
  EXPECT_TRUE(must(collect_garbage(run_.vfs(), {.last = 1})).removed.empty());
  EXPECT_FALSE(remove_attempt(run_.vfs(), {2, victim_.point.attempt_id}).has_value());
  expect_outside_untouched();
}

TEST_P(OddFiles, InPlaceOfTheRunFile) {
  replace(run_.path() / "deepfreeze.json");
  const auto listing = must(read_run(run_.vfs()));
  EXPECT_TRUE(listing.run_rebuilt);
  EXPECT_EQ(newest_first(listing).front(), victim_);
  EXPECT_EQ(call({"verify", run_.text()}).code, 1);
  expect_restored(2);
  EXPECT_FALSE(must(read_run(run_.vfs())).run_rebuilt);
  expect_outside_untouched();
}

TEST_P(OddFiles, InPlaceOfTheRunFileWhereNothingElseTellsTheRun) {
  const fs::path path = run_.path() / "deepfreeze.json";
  fs::remove_all(directory_of(good_));
  fs::remove_all(directory_of(victim_));
  fs::remove(run_.path() / generation_file_name(1));
  replace(path);
  const auto listing = read_run(run_.vfs());
  ASSERT_FALSE(listing.has_value());
  EXPECT_TRUE(blames(listing.error(), path)) << listing.error().message();
  EXPECT_FALSE(create_or_open_run(run_.vfs(), {}).has_value());
  expect_outside_untouched();
}

TEST_P(OddFiles, InPlaceOfAClaim) {
  replace(run_.path() / generation_file_name(1));
  const auto listing = must(read_run(run_.vfs()));
  ASSERT_EQ(listing.claims.size(), 1U);
  EXPECT_FALSE(listing.claims.front().record.has_value());
  EXPECT_EQ(call({"verify", run_.text()}).code, 1);
  EXPECT_EQ(call({"log", run_.text()}).code, 0);
  EXPECT_EQ(must(claim_generation(run_.vfs(), victim_.run_id, {})).generation, 2U);
  expect_restored(2);
  expect_outside_untouched();
}

// The collector removes the name, and the link's target stays.
TEST_P(OddFiles, InWhatIsCollected) {
  replace(part_of(good_));
  const auto report = collect_garbage(run_.vfs(), {.last = 1});
  if (GetParam().kind == OddFile::kDirectory) {
    ASSERT_FALSE(report.has_value());
    EXPECT_TRUE(blames(report.error(), part_of(good_))) << report.error().message();
    EXPECT_EQ(must(read_run(run_.vfs())).half_deleted.size(), 1U);
  } else {
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_FALSE(fs::exists(directory_of(good_)));
  }
  expect_restored(2);
  expect_outside_untouched();
}

TEST_P(OddFiles, InPlaceOfAnAttempt) {
  const fs::path path = directory_of(victim_);
  replace(path);
  const auto listing = must(read_run(run_.vfs()));
  EXPECT_EQ(newest_first(listing), std::vector{good_});
  if (GetParam().kind == OddFile::kDirectory) {
    EXPECT_TRUE(listing.attempts.back().undecided());
    return;
  }
  const Status removed = remove_attempt(run_.vfs(), {2, victim_.point.attempt_id});
  ASSERT_FALSE(removed.has_value());
  EXPECT_TRUE(removed.error().message().contains(path.string())) << removed.error().message();
  EXPECT_FALSE(Snapshot::open(run_.vfs(), victim_).has_value());
  EXPECT_TRUE(must(collect_garbage(run_.vfs(), {.last = 1})).removed.empty());
  expect_restored(1);
  EXPECT_TRUE(fs::exists(outside_ / path.filename() / "manifest.json"));
  expect_outside_untouched();
}

INSTANTIATE_TEST_SUITE_P(All, OddFiles, testing::ValuesIn(odd_files()),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

}  // namespace
}  // namespace odd_files_test
}  // namespace deepfreeze
