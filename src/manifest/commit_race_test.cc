// A commit, and another process that gives the same attempt up and deletes it, call by call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fail_point.h"
#include "base/try.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr AttemptName kAttempt{3, 3};
enum class Process { kCommits, kDeletes };

// Whose call is next; anybody's, once all turns are taken.
class Turns {
 public:
  explicit Turns(std::vector<Process> order) : order_(std::move(order)) {}

  template <class Call>
  auto take(Process own, Call&& call) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order_.empty() || order_.front() == own; });
    if (!order_.empty()) order_.erase(order_.begin());
    auto result = std::forward<Call>(call)();
    changed_.notify_all();
    return result;
  }
  // Its turns are left out.
  void leave(Process own) {
    const std::lock_guard lock(mutex_);
    std::erase(order_, own);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards order_, and makes each call one step
  std::condition_variable changed_;
  std::vector<Process> order_;
};

// One process's view of the disk, which waits for that process's turn before each call.
class InTurn final : public PassingVfs {
 public:
  InTurn(Vfs& disk, Turns& turns, Process own) : PassingVfs(disk), turns_(turns), own_(own) {}
  ~InTurn() override { turns_.leave(own_); }

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    return turns_.take(own_, [&] { return disk_.create(name, access); });
  }
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    return turns_.take(own_, [&] { return disk_.open_read(name, access); });
  }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    return turns_.take(own_, [&] { return disk_.rename_no_replace(from, to); });
  }
  Status remove_file(std::string_view name) override {
    return turns_.take(own_, [&] { return disk_.remove_file(name); });
  }
  Status remove_dir(std::string_view name) override {
    return turns_.take(own_, [&] { return disk_.remove_dir(name); });
  }
  Status sync_dir(std::string_view name) override {
    return turns_.take(own_, [&] { return disk_.sync_dir(name); });
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    return turns_.take(own_, [&] { return disk_.list(name); });
  }

 private:
  Turns& turns_;
  const Process own_;
};

class CommitRace : public testing::Test {
 protected:
  CommitRace() : run_id_(create_or_open_run(disk_, {})->run_id) {
    EXPECT_TRUE(claim_generation(disk_, run_id_, {}));
    EXPECT_TRUE(begin_attempt(disk_, kAttempt));
    EXPECT_TRUE(write_and_seal(disk_, identity()));
  }
  ~CommitRace() override { fail_points::disarm(); }

  Identity identity() const { return make_identity(run_id_, {1, 3, 3, 3}); }

  // As a rank that withdraws, and a collector behind it.
  Status give_up_and_delete(Vfs& vfs) const {
    Manifest aborted{.outcome = Outcome::kAborted, .run_id = run_id_};
    aborted.point = {.generation = 1, .step = 3, .save_index = 3, .attempt_id = 3};
    DF_TRY(const Manifest outcome, abort_attempt(vfs, aborted));
    return outcome.outcome == Outcome::kAborted ? remove_attempt(vfs, kAttempt) : Status{};
  }

  // The result of the commit. `order` lists the calls of both; at its end the deleting process ends
  // before the other continues.
  Result<Manifest> race(SimDisk& disk, const std::vector<Process>& order) const {
    Turns turns(order);
    std::jthread other([&] {
      InTurn vfs(disk, turns, Process::kDeletes);
      std::ignore = give_up_and_delete(vfs);
    });
    InTurn vfs(disk, turns, Process::kCommits);
    return commit_attempt(vfs, make_request(identity()));
  }

  SimDisk disk_;
  std::string run_id_;
};

bool is_listed(SimDisk& disk) {
  const auto listing = read_run(disk);
  return listing && std::ranges::any_of(listing->attempts, &AttemptState::committed);
}

struct Lengths {
  std::size_t commits_before = 0;
  std::size_t deletes = 0;
  std::size_t commits_between = 0;
};

// At least as many as each of the two makes.
constexpr std::size_t kCommitCalls = 12;
constexpr std::size_t kDeleteCalls = 16;

std::vector<Process> order_of(const Lengths& lengths) {
  std::vector<Process> order(lengths.commits_before, Process::kCommits);
  order.insert(order.end(), lengths.deletes, Process::kDeletes);
  order.insert(order.end(), lengths.commits_between, Process::kCommits);
  order.insert(order.end(), kDeleteCalls, Process::kDeletes);
  return order;
}

// All that is listed as committed has its files.
bool is_whole(SimDisk& disk) {
  const auto listing = read_run(disk);
  return listing && std::ranges::all_of(listing->attempts, [&](const AttemptState& attempt) {
           return !attempt.committed() || verify_attempt(disk, *attempt.manifest);
         });
}

// How many of the commits in all these orders have gone well.
template <class Try>
std::size_t try_orders(const Try& commits) {
  std::size_t committed = 0;
  for (std::size_t before = 0; before < kCommitCalls; ++before) {
    for (std::size_t deletes = 0; deletes < kDeleteCalls; ++deletes) {
      for (std::size_t between = 0; between < kCommitCalls; ++between) {
        SCOPED_TRACE(fmt::format("{} calls, {} of the other, {}", before, deletes, between));
        if (commits(order_of({before, deletes, between}))) ++committed;
        if (testing::Test::HasFailure()) return committed;
      }
    }
  }
  return committed;
}

TEST_F(CommitRace, WhateverIsPublishedHasItsFilesWhoeverDeletesMeanwhile) {
  const std::size_t committed = try_orders([&](const std::vector<Process>& order) {
    const auto disk = disk_.clone();
    const auto manifest = race(*disk, order);
    EXPECT_TRUE(is_whole(*disk));
    EXPECT_EQ(manifest.has_value(), is_listed(*disk));
    return manifest.has_value();
  });
  EXPECT_GT(committed, 0U);
  EXPECT_LT(committed, kCommitCalls * kDeleteCalls * kCommitCalls);
}

// A record without files would be the newest of the line, for whose sake a collector deletes.
TEST_F(CommitRace, AlsoWhereItsProcessDiesOnceItIsPublished) {
  ASSERT_TRUE(fail_points::arm("commit.manifest_renamed=error"));
  try_orders([&](const std::vector<Process>& order) {
    const auto disk = disk_.clone();
    std::ignore = race(*disk, order);
    EXPECT_TRUE(is_whole(*disk));
    return false;
  });
}

}  // namespace
}  // namespace deepfreeze
