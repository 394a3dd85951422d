// Names in a run's directory that nobody of us wrote, and files of sizes that nobody of us writes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>

#include "base/log.h"
#include "base/try.h"
#include "cli/test_run.h"
#include "deepfreeze/deepfreeze.h"
#include "manifest/commit.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "manifest/run_survey.h"
#include "manifest/scrub_memory.h"
#include "restore/run_fixture.h"
#include "restore/snapshot.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

FixtureSave save_of(std::uint64_t step) {
  return {.step = step, .ranks = {{f32_tensor("w", {1, 2, 3})}}, .tree = {}, .annotations = {}};
}

const std::vector<std::string> kOddNames = {
    "line\nbreak", "\xff\xfe not UTF-8", std::string(255, 'x'), "\x1b[2Jcleared", "-rf",
    "a b",         "..hidden",           "manifest.json\n",     "step-*",         "%s%n"};

void touch(const fs::path& path) { std::ofstream(path) << "not ours"; }

class HostileNames : public testing::Test {
 protected:
  HostileNames() {
    set_log_sink([](std::string_view) {});
    good_ = run_.save(save_of(1));
    newest_ = run_.save(save_of(2));
  }
  ~HostileNames() override { set_log_sink({}); }

  [[nodiscard]] fs::path directory_of(const Manifest& manifest) const {
    return run_.file_path(manifest, "manifest.json").parent_path();
  }
  [[nodiscard]] std::vector<Manifest> listed() { return newest_first(must(read_run(run_.vfs()))); }

  RunFixture run_;
  Manifest good_;
  Manifest newest_;
};

TEST_F(HostileNames, BesideTheAttemptsAreIgnored) {
  for (const std::string& name : kOddNames) touch(run_.path() / name);
  EXPECT_EQ(listed(), (std::vector{newest_, good_}));
  EXPECT_EQ(call({"verify", run_.text()}).code, 0);
  EXPECT_EQ(must(collect_garbage(run_.vfs(), {.last = 1})).removed.size(), 1U);
  for (const std::string& name : kOddNames) EXPECT_TRUE(fs::exists(run_.path() / name));
}

TEST_F(HostileNames, InAnAttemptCostNoCheckpoint) {
  for (const std::string& name : kOddNames) touch(directory_of(newest_) / name);
  EXPECT_EQ(listed(), (std::vector{newest_, good_}));
  EXPECT_EQ(call({"verify", run_.text()}).code, 0);
  EXPECT_EQ(call({"export", run_.text(), (run_.path() / "out").string()}).code, 0);
}

// An entry that we can't name can't be deleted: this is reported, and no other attempt waits for
// it.
TEST_F(HostileNames, InAnAttemptThatExpiredStayAndAreTold) {
  const Manifest third = run_.save(save_of(3));
  touch(directory_of(good_) / kOddNames.front());
  for (int round = 0; round < 2; ++round) {
    const auto report = collect_garbage(run_.vfs(), {.last = 1});
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(report.error().message().contains(directory_of(good_).filename().string() +
                                                  "/line?break': not a safe relative name"))
        << report.error().message();
    EXPECT_EQ(listed(), std::vector{third});
    EXPECT_FALSE(fs::exists(directory_of(newest_)));
    EXPECT_TRUE(fs::exists(directory_of(good_) / kOddNames.front()));
  }
}

TEST_F(HostileNames, ByTheThousandHideNothing) {
  constexpr int kCount = 1500;
  for (int i = 0; i < kCount; ++i) {
    const std::string number = std::to_string(i);
    touch(run_.path() / ("generation.0123456789abcdef" + number + ".tmp"));
    touch(run_.path() / attempt_dir_name({1'000'000U + static_cast<unsigned>(i), 1}));
    touch(directory_of(newest_) / ("rank-" + number + ".part"));
  }
  for (unsigned i = 0; i < 1000; ++i) {
    fs::create_directory(run_.path() / attempt_dir_name({2'000'000U + i, 1}));
  }
  EXPECT_EQ(listed(), (std::vector{newest_, good_}));
  EXPECT_EQ(must(read_run(run_.vfs())).attempts.size(), 1002U);
  EXPECT_EQ(call({"verify", run_.text()}).code, 0);
  EXPECT_EQ(must(collect_garbage(run_.vfs(), {.last = 1})).removed.size(), 1U);
}

// Other ranks' reports are read only as far as one of ours would be long, and only a few of them.
TEST_F(HostileNames, AThousandReportsOfFailureTakeNoMemory) {
  constexpr std::uint32_t kCount = 1000;
  const Identity open = run_.write_undecided(save_of(3));
  const fs::path directory = run_.path() / attempt_dir_name({3, open.attempt_id});
  for (std::uint32_t rank = 0; rank < kCount; ++rank) {
    const fs::path path = directory / failed_file_name({.rank = rank, .world_size = kCount});
    std::ofstream(path) << std::string(rank == 0 ? kFailureTextBytesMax : 1, 'x');
    if (rank == 1) fs::resize_file(path, kFailureTextBytesMax + 1);
  }
  const auto found = must(survey_run(run_.vfs(), must(read_run(run_.vfs()))));
  std::uint64_t bytes = 0;
  for (const Oddity& oddity : found) bytes += oddity.detail.size();
  EXPECT_EQ(found.size(), 1U + 3U + 1U) << "the attempt, three reports, and how many more";
  EXPECT_EQ(found.back().detail, "and 997 more");
  EXPECT_EQ(found.back().kind, OddityKind::kRankFailed);
  EXPECT_EQ(bytes, kFailureTextBytesMax + 1 + std::string_view("and 997 more").size());
  EXPECT_EQ(call({"doctor", run_.text()}).code, 0);
}

// Sparse files: their claimed sizes cost an attacker nothing, so they must cost us nothing either.
TEST_F(HostileNames, RecordsThatAreTooLargeAreNotRead) {
  const fs::path manifest = run_.file_path(newest_, "manifest.json");
  fs::resize_file(manifest, kManifestBytesMax + 1);
  fs::resize_file(run_.path() / "deepfreeze.json", std::uintmax_t{1} << 40);
  fs::resize_file(run_.path() / generation_file_name(1), std::uintmax_t{1} << 40);
  const auto listing = must(read_run(run_.vfs()));
  EXPECT_TRUE(listing.run_rebuilt);
  EXPECT_FALSE(listing.claims.front().record.has_value());
  ASSERT_TRUE(listing.attempts.back().fault.has_value());
  EXPECT_EQ(listing.attempts.back().fault->message(),
            "read " + manifest.string() + ": 67108865 bytes, at most 67108864 make sense");
  EXPECT_EQ(newest_first(listing), std::vector{good_});
}

// The first 8 bytes of a file of 40 GB say how long its header is.
TEST_F(HostileNames, HeadersThatAreTooLargeAreNotRead) {
  const fs::path path = run_.file_path(newest_, newest_.files.front().name);
  Manifest forged = newest_;
  forged.files.front().bytes = std::uint64_t{40} << 30;
  fs::resize_file(path, forged.files.front().bytes);
  for (const std::uint64_t length : {std::uint64_t{25'001'976}, std::uint64_t{1} << 32,
                                     std::uint64_t{1} << 63, ~std::uint64_t{7}, ~std::uint64_t{0},
                                     forged.files.front().bytes - 8, forged.files.front().bytes}) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
        .write(reinterpret_cast<const char*>(&length), sizeof(length));
    const auto opened = Snapshot::open(run_.vfs(), forged);
    ASSERT_FALSE(opened.has_value()) << length;
    EXPECT_EQ(opened.error().code(), ErrorCode::kCorrupt);
    EXPECT_TRUE(opened.error().message().contains(
        fmt::format("header: {} bytes in a file of 42949672960", length)))
        << opened.error().message();
  }
}

// Runs in a child, because a process can't become root again. Its exit status is 0 if `body` holds.
bool holds_for_another_user(const std::function<bool()>& body) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(2);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Why a save there does not become durable.
Status save_into(const fs::path& run) {
  DF_TRY(Checkpointer checkpointer, Checkpointer::open(run, {}));
  const std::vector<std::byte> bytes(9);
  const TensorTable table = {
      {.spec = {.key = "w", .dtype = DType::kU8, .shape = {9}}, .data = bytes}};
  DF_TRY(const auto handle, checkpointer.save({.step = 3, .tensors = table}));
  return handle->wait(Level::kDurable, std::chrono::seconds(60));
}

std::vector<fs::path> names_below(const fs::path& directory) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) names.push_back(entry);
  std::ranges::sort(names);
  return names;
}

TEST_F(HostileNames, ARunOfAnotherUserIsReadAndASaveIntoItSaysWhyNot) {
  const std::vector<fs::path> before = names_below(run_.path());
  fs::permissions(run_.path(), fs::perms(0555));  // nor for its owner, if tests do not run as root
  EXPECT_TRUE(holds_for_another_user([&] {
    const auto vfs = must(open_posix_vfs(run_.path()));
    return newest_first(must(read_run(*vfs))) == std::vector{newest_, good_} &&
           must(verify_attempt(*vfs, newest_, {.thread_count = 1})).empty();
  }));
  EXPECT_TRUE(holds_for_another_user([&] {
    const Status saved = save_into(run_.path());
    return !saved && saved.error().code() == ErrorCode::kIo && saved.error().os_errno() == EACCES &&
           saved.error().message().contains(run_.text()) &&
           saved.error().message().contains("Permission denied");
  }));
  fs::permissions(run_.path(), fs::perms::owner_all);
  EXPECT_EQ(names_below(run_.path()), before);
  EXPECT_EQ(listed(), (std::vector{newest_, good_}));
}

TEST_F(HostileNames, WhatAnotherUserMayNotReadIsSaidAndPassedOver) {
  const fs::path part = run_.file_path(newest_, newest_.files.front().name);
  fs::permissions(run_.path(), fs::perms::others_all | fs::perms::owner_all);
  fs::permissions(part, fs::perms::none);
  EXPECT_TRUE(holds_for_another_user([&] {
    const auto vfs = must(open_posix_vfs(run_.path()));
    const auto listing = must(read_run(*vfs));
    const auto opened = Snapshot::open(*vfs, newest_);
    return newest_first(listing).size() == 2 && !opened &&
           opened.error().code() == ErrorCode::kIo &&
           opened.error().message().contains(part.string() + ": Permission denied") &&
           must(verify_attempt(*vfs, good_, {.thread_count = 1})).empty();
  }));
}

TEST_F(HostileNames, WhatAnotherUserMayNotReadIsNotCalledDamaged) {
  const fs::path part = run_.file_path(newest_, newest_.files.front().name);
  fs::permissions(run_.path(), fs::perms::others_all | fs::perms::owner_all);
  fs::permissions(part, fs::perms::none);
  EXPECT_TRUE(holds_for_another_user([&] {
    const auto findings = call_json({"doctor", run_.text(), "--verify"}).json()["findings"];
    return findings.size() == 1 && findings[0]["kind"] == "checkpoint_unread";
  }));
  EXPECT_TRUE(holds_for_another_user([&] { return call({"scrub", run_.text()}).code == 1; }));
  const auto memory = must(recall_scrubs(run_.vfs(), newest_.run_id));
  ASSERT_EQ(memory.entries.size(), 1U) << "it was not read, so nothing is remembered of it";
  EXPECT_EQ(memory.entries[0].attempt.step, 1U);
  EXPECT_TRUE(memory.entries[0].good);
}

TEST_F(HostileNames, AnAttemptThatAnotherUserMayNotListIsAFault) {
  const fs::path directory = directory_of(newest_);
  fs::permissions(run_.path(), fs::perms::others_all | fs::perms::owner_all);
  fs::permissions(directory, fs::perms::none);
  EXPECT_TRUE(holds_for_another_user([&] {
    const auto vfs = must(open_posix_vfs(run_.path()));
    const auto listing = must(read_run(*vfs));
    const auto& fault = listing.attempts.back().fault;
    return newest_first(listing) == std::vector{good_} && fault &&
           fault->message() == "list " + directory.string() + ": Permission denied" &&
           must(collect_garbage(*vfs, {.last = 1})).removed.empty();
  }));
  fs::permissions(directory, fs::perms::owner_all);
}

}  // namespace
}  // namespace deepfreeze
