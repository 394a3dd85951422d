// The public interface with several ranks, which are threads here, on the real file system.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "base/fail_point.h"
#include "base/log.h"
#include "deepfreeze/deepfreeze.h"
#include "plan/share_plan.h"
#include "support/code_of.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze::several_ranks_engine_test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Group = std::shared_ptr<RankGroup>;

constexpr milliseconds kDeadline{60'000};  // for waits that must not hang, not a verdict on speed
constexpr std::uint64_t kRows = 3'001;     // of the largest tensor
constexpr std::uint64_t kColumns = 1'024;

// The state of a data-parallel job: equal on all ranks except for each rank's generator.
struct State {
  std::vector<float> weights = std::vector<float>(kRows * kColumns);
  std::vector<float> bias = std::vector<float>(77);
  std::vector<std::uint64_t> generator = std::vector<std::uint64_t>(9);

  void fill(std::uint64_t step, std::uint32_t rank) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(step * 1'000'000 + i);
    }
    std::ranges::fill(bias, static_cast<float>(step));
    std::ranges::fill(generator, 100 * step + rank);
  }
  bool operator==(const State&) const = default;
};

State state_at(std::uint64_t step, std::uint32_t rank) {
  State state;
  state.fill(step, rank);
  return state;
}

std::string generator_key(std::uint32_t rank) { return "@rank0000" + std::to_string(rank) + ".g"; }

TensorTable table_of(const State& state, std::uint32_t rank) {
  return {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {kRows, kColumns}},
           .data = std::as_bytes(std::span(state.weights))},
          {.spec = {.key = "b", .dtype = DType::kF32, .shape = {77}},
           .data = std::as_bytes(std::span(state.bias))},
          {.spec = {.key = generator_key(rank), .dtype = DType::kU64, .shape = {9}},
           .data = std::as_bytes(std::span(state.generator))}};
}

std::vector<RestoreTarget> targets_of(State& state, std::uint32_t rank) {
  return {{"w", std::as_writable_bytes(std::span(state.weights))},
          {"b", std::as_writable_bytes(std::span(state.bias))},
          {generator_key(rank), std::as_writable_bytes(std::span(state.generator))}};
}

// Rows [first, end) of "w", as a rank of a sharded job has them.
TensorSpec rows_spec(std::uint64_t first, std::uint64_t end) {
  return {.key = "w",
          .dtype = DType::kF32,
          .shape = {end - first, kColumns},
          .box = Box{{first, 0}, {end - first, kColumns}},
          .global_shape = {kRows, kColumns}};
}

class SeveralRanksTest : public testing::Test {
 protected:
  SeveralRanksTest() {
    set_log_sink([](std::string_view) {});
  }
  ~SeveralRanksTest() override {
    fail_points::disarm();
    set_log_sink({});
  }

  [[nodiscard]] fs::path run_dir() const { return dir_.path() / "run"; }

  // Copies behind training: tensors that are copied at once need no confirmation and no fence.
  Checkpointer open(const Group& group, Options options = {}) {
    options.ranks = group;
    options.profile = Profile::kLatency;
    options.commit_wait_max = milliseconds(20'000);
    auto opened = Checkpointer::open(run_dir(), std::move(options));
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(*opened);
  }

  // Nothing, or why the save of that step by this rank is not durable.
  static Status save(Checkpointer& run, std::uint32_t rank, std::uint64_t step) {
    const State state = state_at(step, rank);
    auto handle = run.save({.step = step,
                            .tensors = table_of(state, rank),
                            .objects = "[" + std::to_string(rank) + "]"});
    if (!handle) return std::unexpected(handle.error());
    return (*handle)->wait(Level::kDurable, kDeadline);
  }

  void save_durably(std::uint32_t ranks, const std::vector<std::uint64_t>& steps) {
    ThreadRanks(ranks).run([&](std::uint32_t rank, const Group& group) {
      Checkpointer run = open(group);
      for (const std::uint64_t step : steps) {
        const Status saved = save(run, rank, step);
        EXPECT_TRUE(saved) << saved.error().message();
      }
    });
  }

  CheckpointInfo newest() {
    const auto listed = list_checkpoints(run_dir());
    EXPECT_TRUE(listed && !listed->empty());
    return listed->front();
  }

  std::uint64_t next_step() {
    const auto listed = list_checkpoints(run_dir());
    return listed && !listed->empty() ? listed->front().step + 1 : 1;
  }

  bool is_listed(std::uint64_t step) {
    const auto listed = list_checkpoints(run_dir());
    return listed && std::ranges::any_of(*listed, [&](const auto& at) { return at.step == step; });
  }

  std::vector<std::string> names_in_run(const std::string& prefix) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_dir())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix)) names.push_back(name);
    }
    return names;
  }

  // Which it makes once it has joined the attempt, the only one that there is.
  void await_file_of_rank1() {
    const std::string attempt = names_in_run("step-").at(0);
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!fs::exists(run_dir() / attempt / "rank-00001-of-00002-0-of-1.part")) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  ScopedDir dir_;
};

std::map<std::uint32_t, std::uint64_t> file_bytes_by_rank(const CheckpointInfo& info) {
  std::map<std::uint32_t, std::uint64_t> bytes;
  for (const auto& entry : fs::directory_iterator(info.path)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-")) continue;
    bytes[static_cast<std::uint32_t>(std::stoul(name.substr(5, 5)))] += entry.file_size();
  }
  return bytes;
}

TEST_F(SeveralRanksTest, WhatAllHaveIsWrittenOnceAndEvenly) {
  save_durably(4, {1, 2});
  const auto bytes = file_bytes_by_rank(newest());
  ASSERT_EQ(bytes.size(), 4U);
  std::uint64_t sum = 0;
  for (const auto& [rank, count] : bytes) {
    sum += count;
    EXPECT_LE(count, kRows * kColumns * 4 / 4 + kCutBytesMin) << "rank " << rank;
  }
  EXPECT_LE(sum, kRows * kColumns * 4 + (1 << 16)) << "more than once";
}

TEST_F(SeveralRanksTest, OneProcessReadsWhatSeveralWrote) {
  save_durably(3, {1, 2});
  const auto opened = open_checkpoint(newest());
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->info().world_size, 3U);
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    State found;
    const Status read = opened->read(targets_of(found, rank));
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(found, state_at(2, rank));
    EXPECT_EQ(opened->objects(rank), "[" + std::to_string(rank) + "]");
  }
  EXPECT_EQ(opened->objects(3), "");
}

TEST_F(SeveralRanksTest, AnotherNumberOfRanksResumesWithBoxesOfItsOwn) {
  save_durably(3, {5});
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const TensorSpec mine = rank == 0 ? rows_spec(0, 1000) : rows_spec(1000, kRows);
    std::vector<float> rows(mine.shape[0] * kColumns);
    const auto restored = restore_newest(
        run, std::vector<RestoreTarget>{{"w", std::as_writable_bytes(std::span(rows)), mine.box}});
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_EQ(restored->restored.step, 5U);
    const State whole = state_at(5, 0);
    EXPECT_EQ(std::memcmp(rows.data(), whole.weights.data() + mine.box->offset[0] * kColumns,
                          rows.size() * sizeof(float)),
              0);
    // And goes on as a sharded job.
    auto handle =
        run.save({.step = 6, .tensors = {{.spec = mine, .data = std::as_bytes(std::span(rows))}}});
    ASSERT_TRUE(handle) << handle.error().message();
    const Status durable = (*handle)->wait(Level::kDurable, kDeadline);
    EXPECT_TRUE(durable) << durable.error().message();
  });
  State found;
  ASSERT_TRUE(open_checkpoint(newest()).value().read(
      std::vector<RestoreTarget>{{"w", std::as_writable_bytes(std::span(found.weights))}}));
  EXPECT_EQ(found.weights, state_at(5, 0).weights);
}

TEST_F(SeveralRanksTest, AStateThatOneRankCanNotSaveIsEveryRanksErrorAndTheNextIsSaved) {
  ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const State state = state_at(1, rank);
    TensorTable table = table_of(state, rank);
    if (rank == 1) table.push_back(table.front());
    const auto refused = run.save({.step = 1, .tensors = table});
    ASSERT_EQ(code_of(refused), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(refused.error().message().contains("rank 1")) << refused.error().message();
    EXPECT_TRUE(save(run, rank, 2));
  });
  EXPECT_EQ(newest().step, 2U);
}

TEST_F(SeveralRanksTest, WhoDeclinesTellsTheOthersWhy) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    if (rank == 1) {
      run.decline(Error(ErrorCode::kEncode, "a lambda"));
    } else {
      const Status saved = save(run, rank, 1);
      ASSERT_EQ(code_of(saved), ErrorCode::kEncode);
      EXPECT_TRUE(saved.error().message().contains("rank 1: a lambda")) << saved.error().message();
    }
    EXPECT_TRUE(save(run, rank, 2));
  });
}

TEST_F(SeveralRanksTest, AllDoAsRank0) {
  ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    EXPECT_TRUE(run.as_rank0(rank == 0).value());
    EXPECT_FALSE(run.as_rank0(rank != 0).value());
  });
}

TEST_F(SeveralRanksTest, TensorsThatContradictEachOtherAreEveryRanksError) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const State state = state_at(1, rank);
    TensorTable table = table_of(state, rank);
    if (rank == 1) table[1].spec.dtype = DType::kI32;
    EXPECT_EQ(code_of(run.save({.step = 1, .tensors = table})), ErrorCode::kMismatch);
    EXPECT_TRUE(save(run, rank, 2));
  });
}

TEST_F(SeveralRanksTest, ReplicasThatDifferAreEveryRanksError) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    State state = state_at(1, rank);
    if (rank == 1) state.bias[7] += 1;
    const auto refused = run.save({.step = 1, .tensors = table_of(state, rank)});
    ASSERT_EQ(code_of(refused), ErrorCode::kMismatch);
    EXPECT_TRUE(refused.error().message().contains("tensor b: rank 0 and rank 1"));
    EXPECT_TRUE(save(run, rank, 2));
  });
}

TEST_F(SeveralRanksTest, OtherTensorsAreSharedAnew) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    EXPECT_TRUE(save(run, rank, 1));
    const State state = state_at(2, rank);
    TensorTable fewer = table_of(state, rank);
    fewer.erase(fewer.begin());
    auto handle = run.save({.step = 2, .tensors = fewer});
    ASSERT_TRUE(handle) << handle.error().message();
    EXPECT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
    EXPECT_TRUE(save(run, rank, 3));
  });
  EXPECT_EQ(open_checkpoint(newest()).value().tensors().size(), 4U);
}

// The first rank to come is hit, once for each step of a save. If its files have their final names
// already, rank 0 may have published them: then all others have the step.
TEST_F(SeveralRanksTest, WhereOneRankFailsAllHearOfItAndTheNextIsSaved) {
  for (const char* step : {"commit.directory_made", "part.data_written", "part.header_synced",
                           "commit.sealed", "commit.seal_synced", "commit.parts_checked"}) {
    const std::uint64_t number = next_step();
    std::atomic<int> failed = 0;
    ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
      Checkpointer run = open(group);
      ASSERT_TRUE(save(run, rank, number));
      if (rank == 0) {
        ASSERT_TRUE(fail_points::arm(std::string(step) + "=error:EIO@1"));
      }
      ASSERT_TRUE(run.agree("", {}));
      if (!save(run, rank, number + 1)) ++failed;
      ASSERT_TRUE(run.agree("", {}));
      if (rank == 0) fail_points::disarm();
      ASSERT_TRUE(run.agree("", {}));
      const Status saved = save(run, rank, number + 2);
      EXPECT_TRUE(saved) << step << " rank " << rank << ": " << saved.error().message();
    });
    const bool may_be_there = std::string_view(step).starts_with("commit.seal");
    EXPECT_EQ(failed, may_be_there && is_listed(number + 1) ? 1 : 3) << step;
    EXPECT_FALSE(is_listed(number + 1) && !may_be_there) << step;
    EXPECT_EQ(newest().step, number + 2) << step;
  }
}

TEST_F(SeveralRanksTest, ARankThatIsGoneIsAnErrorInTime) {
  const ThreadRanks ranks(3, milliseconds(2'000));
  ranks.run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    if (rank == 1) return;
    const State state = state_at(1, rank);
    for (int i = 0; i < 2; ++i) {
      const auto handle = run.save({.step = 1, .tensors = table_of(state, rank)});
      ASSERT_TRUE(handle && *handle);
      const Status failed = (*handle)->wait(Level::kCaptured, kDeadline);
      ASSERT_FALSE(failed);
      EXPECT_NE(failed.error().code(), ErrorCode::kTimeout) << "that is the waiter's own";
    }
  });
  EXPECT_TRUE(list_checkpoints(run_dir())->empty());
}

TEST_F(SeveralRanksTest, ARankThatDiesBeforeItsPartIsSealedLeavesNoCheckpoint) {
  const ThreadRanks ranks(2);
  ranks.run([&](std::uint32_t rank, const Group& group) {
    Options options;
    options.ranks = group;
    options.commit_wait_max = milliseconds(200);
    options.profile = Profile::kLatency;
    auto run = Checkpointer::open(run_dir(), options);
    ASSERT_TRUE(run);
    const State state = state_at(1, rank);
    SaveRequest request{.step = 1, .tensors = table_of(state, rank)};
    request.tensors.back().guard = 1;
    request.confirm = rank == 1;  // a save that is never confirmed is never sealed
    const auto handle = run->save(request);
    ASSERT_TRUE(handle && *handle);
    if (rank == 0) {
      EXPECT_FALSE((*handle)->wait(Level::kDurable, kDeadline));
    }
  });
  EXPECT_TRUE(list_checkpoints(run_dir())->empty());
}

TEST_F(SeveralRanksTest, AllFallBackTogether) {
  save_durably(2, {1, 2});
  for (const auto& entry : fs::directory_iterator(newest().path)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-00001")) continue;
    std::fstream stream(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(entry.file_size() - 5));
    stream.put('\x5a');
  }
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    std::vector<float> half(kColumns);  // the first row: rank 0 wrote it, and it is whole
    std::vector<RestoreTarget> targets = {
        {"w", std::as_writable_bytes(std::span(half)), Box{{0, 0}, {1, kColumns}}}};
    State state;
    if (rank == 1) targets = targets_of(state, rank);
    const auto restored = restore_newest(run, targets);
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_EQ(restored->restored.step, 1U);
    ASSERT_EQ(restored->fell_back_from.size(), 1U);
    EXPECT_TRUE(restored->fell_back_from[0].second.message().contains("rank 1"));
    EXPECT_EQ(half[0], rank == 1 ? 0.0F : 1'000'000.0F);
  });
}

// Something happens between the list of all and the look of each.
class InterruptedRanks final : public RankGroup {
 public:
  InterruptedRanks(Group group, std::function<void()> meanwhile)
      : group_(std::move(group)), meanwhile_(std::move(meanwhile)) {}
  [[nodiscard]] std::uint32_t rank() const override { return group_->rank(); }
  [[nodiscard]] std::uint32_t world_size() const override { return group_->world_size(); }
  [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
    return group_->gather(std::move(bytes));
  }
  [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
    constexpr int kListAgreedOn = 3;  // after: open, candidates
    if (++scatters_ == kListAgreedOn && rank() == 0) meanwhile_();
    return group_->scatter(std::move(bytes));
  }

 private:
  Group group_;
  std::function<void()> meanwhile_;
  int scatters_ = 0;
};

TEST_F(SeveralRanksTest, WhatIsDeletedMeanwhileIsNotTriedAgain) {
  save_durably(2, {1, 2});
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(std::make_shared<InterruptedRanks>(
        group, [&] { EXPECT_TRUE(delete_checkpoint(newest())); }));
    State state;
    const auto restored = restore_newest(run, targets_of(state, rank));
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_EQ(restored->restored.step, 1U);
    EXPECT_TRUE(restored->fell_back_from.empty()) << "it is no fault";
    EXPECT_EQ(state, state_at(1, rank));
  });
}

// The step that allowed the deletion is newer than the list.
TEST_F(SeveralRanksTest, WhatIsDeletedForANewerStepIsFollowedByThat) {
  save_durably(2, {1, 2});
  const auto save_the_third = [&] {
    Checkpointer other = Checkpointer::open(run_dir(), {.profile = Profile::kLatency}).value();
    EXPECT_TRUE(other.continue_from(newest()));
    EXPECT_TRUE(save(other, 0, 3));
    EXPECT_TRUE(delete_checkpoint(list_checkpoints(run_dir())->at(1)));
  };
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(std::make_shared<InterruptedRanks>(group, save_the_third));
    State state;
    std::vector<RestoreTarget> targets = targets_of(state, rank);
    targets.pop_back();  // of each rank its own
    const auto restored = restore_newest(run, targets);
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_EQ(restored->restored.step, 3U);
    EXPECT_EQ(state.weights, state_at(3, 0).weights);
  });
}

TEST_F(SeveralRanksTest, AllRanksHaveTheSameBestOrTheSameError) {
  const Keep keep{.best = Keep::Best{.metric = "loss"}};
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group, {.keep = keep});
    for (const std::uint64_t step : {1U, 2U, 3U}) {
      const State state = state_at(step, rank);
      const double loss = step == 2 ? 0.5 : 1.0;
      const auto handle =
          run.save({.step = step, .tensors = table_of(state, rank), .metrics = {{"loss", loss}}});
      ASSERT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
    }
    EXPECT_EQ(run.best().value()->step, 2U);
    EXPECT_EQ(code_of(run.best({.metric = "acc"})), ErrorCode::kNotFound);
    const BestBy own{.metric = "loss",
                     .better = rank == 0 ? Keep::Better::kMin : Keep::Better::kMax};
    EXPECT_EQ(code_of(run.best(own)), ErrorCode::kMismatch) << "each rank asks for another one";
  });
}

TEST_F(SeveralRanksTest, WhereOneRankIsBusyAllSkip) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options;
    options.on_busy = OnBusy::kSkip;
    Checkpointer run = open(group, options);
    const State state = state_at(1, rank);
    SaveRequest request{.step = 1, .tensors = table_of(state, rank)};
    request.tensors.back().guard = 1;
    request.confirm = rank == 1;  // its arena stays taken until it is confirmed
    const auto first = run.save(request);
    ASSERT_TRUE(first && *first);
    if (rank == 0) {
      EXPECT_TRUE((*first)->wait(Level::kCaptured, kDeadline));
    }
    request.step = 2;
    const auto second = run.save(request);
    ASSERT_TRUE(second) << second.error().message();
    EXPECT_FALSE(second->has_value());
    if (rank == 1) {
      ASSERT_TRUE((*first)->wait_copied(kDeadline));
      (*first)->confirm({});
    }
    EXPECT_TRUE((*first)->wait(Level::kDurable, kDeadline));
  });
}

TEST_F(SeveralRanksTest, WhereOneCanNotOpenTheRunNoneHasIt) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options;
    options.ranks = group;
    if (rank == 1) options.keep.last = 0;
    const auto run = Checkpointer::open(run_dir(), options);
    ASSERT_EQ(code_of(run), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(run.error().message().contains("rank 1")) << run.error().message();
  });
}

TEST_F(SeveralRanksTest, ARunThatIsDeletedIsMadeAgainForAll) {
  const auto delete_contents = [&] {
    for (const auto& entry : fs::directory_iterator(run_dir())) fs::remove_all(entry.path());
  };
  const std::vector<std::function<void()>> harms = {
      [&] { fs::remove_all(run_dir()); },
      [&] { fs::rename(run_dir(), dir_.path() / "moved"); },
      delete_contents,
  };
  ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    std::uint64_t step = 0;
    for (const auto& harm : harms) {
      for (int saves = 0; saves < 2; ++saves) {
        const Status saved = save(run, rank, ++step);
        ASSERT_TRUE(saved) << step << ": " << saved.error().message();
      }
      ASSERT_TRUE(run.as_rank0(true));
      if (rank == 0) harm();
      ASSERT_TRUE(run.as_rank0(true));
    }
    const Status saved = save(run, rank, ++step);
    ASSERT_TRUE(saved) << saved.error().message();
  });
  EXPECT_EQ(newest().step, 7U);
  EXPECT_EQ(next_step(), 8U);
  EXPECT_EQ(verify_checkpoint(newest()).value().size(), 0U);
  EXPECT_EQ(names_in_run("step-").size(), 1U);
}

// The other ranks do not hear of the new run then.
TEST_F(SeveralRanksTest, ARunThatCouldNotBeClaimedAgainIsClaimedByALaterSave) {
  for (const std::string point : {"claim.written", "claim.renamed", "claim.synced"}) {
    SCOPED_TRACE(point);
    fs::remove_all(run_dir());
    ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
      Checkpointer run = open(group);
      ASSERT_TRUE(save(run, rank, 1));
      ASSERT_TRUE(run.as_rank0(true));
      if (rank == 0) {
        fs::remove_all(run_dir());
        fail_points::arm(point + "=error").value();
      }
      ASSERT_TRUE(run.as_rank0(true));
      const State state = state_at(2, rank);
      const auto failed = run.save({.step = 2, .tensors = table_of(state, rank)});
      ASSERT_TRUE(failed && *failed) << "it is no mistake of the caller's";
      EXPECT_FALSE((*failed)->wait(Level::kDurable, kDeadline));
      ASSERT_TRUE(run.as_rank0(true));
      if (rank == 0) fail_points::disarm();
      ASSERT_TRUE(run.as_rank0(true));
      for (const std::uint64_t step : {3U, 4U}) {
        const Status saved = save(run, rank, step);
        ASSERT_TRUE(saved) << saved.error().message();
      }
    });
    EXPECT_EQ(newest().step, 4U);
  }
}

TEST_F(SeveralRanksTest, RanksInDifferentDirectoriesAreToldSo) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options;
    options.ranks = group;
    auto run = Checkpointer::open(dir_.path() / std::to_string(rank), options);
    ASSERT_TRUE(run);
    const State state = state_at(1, rank);
    const auto saved = run->save({.step = 1, .tensors = table_of(state, rank)});
    ASSERT_EQ(code_of(saved), ErrorCode::kMismatch);
    EXPECT_TRUE(saved.error().message().contains("one directory that all see, or near=\"node\""))
        << saved.error().message();
  });
}

TEST_F(SeveralRanksTest, AllHaveStatisticsOrNone) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    const auto run = Checkpointer::open(run_dir(), {.ranks = group, .statistics = rank == 1});
    ASSERT_EQ(code_of(run), ErrorCode::kMismatch);
    EXPECT_TRUE(run.error().message().contains("open with statistics")) << run.error().message();
  });
}

TEST_F(SeveralRanksTest, WhatOneRankDoesNotSeeNoneIsOffered) {
  save_durably(2, {1});
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options;
    options.ranks = group;
    auto run = Checkpointer::open(rank == 0 ? run_dir() : dir_.path() / "elsewhere", options);
    ASSERT_TRUE(run);
    const auto offered = run->candidates();
    ASSERT_EQ(code_of(offered), ErrorCode::kMismatch);
    EXPECT_TRUE(offered.error().message().contains("rank 1: rank 0 sees step 1"))
        << offered.error().message();
    EXPECT_TRUE(offered.error().message().contains("near=\"node\"")) << offered.error().message();
  });
}

TEST_F(SeveralRanksTest, WhatRank0CanNotListIsEveryRanksError) {
  save_durably(2, {1});
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    if (rank == 0) fs::remove_all(run_dir());
    ASSERT_TRUE(run.agree("", {}));
    const auto offered = run.candidates();
    ASSERT_FALSE(offered);
    EXPECT_TRUE(offered.error().message().contains("rank 0")) << offered.error().message();
  });
}

TEST_F(SeveralRanksTest, RanksOfAnOlderIncarnationAreFencedOff) {
  save_durably(2, {1});
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer old = open(group);
    ASSERT_TRUE(save(old, rank, 2));
    ASSERT_TRUE(old.agree("", {}));
    Checkpointer next = open(group);  // all of them again, as after a restart
    ASSERT_TRUE(save(next, rank, 3));
    ASSERT_TRUE(old.agree("", {}));
    EXPECT_EQ(code_of(save(old, rank, 4)), ErrorCode::kFenced);
  });
  EXPECT_EQ(newest().step, 3U);
}

TEST_F(SeveralRanksTest, PrewarmsTogether) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const State state = state_at(1, rank);
    const Status warm = run.prewarm({.tensors = table_of(state, rank)});
    ASSERT_TRUE(warm) << warm.error().message();
    EXPECT_TRUE(save(run, rank, 1));
  });
}

// Before training all ranks have the same, whatever it is.
TEST_F(SeveralRanksTest, APrewarmProvesNothingOfReplicas) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    State state = state_at(1, rank);
    ASSERT_TRUE(run.prewarm({.tensors = table_of(state, rank)}));
    state.bias[3] += static_cast<float>(rank);
    const auto saved = run.save({.step = 1, .tensors = table_of(state, rank)});
    EXPECT_EQ(code_of(saved), ErrorCode::kMismatch);
  });
}

// The last rank's last sync fails when rank 0 has published already.
TEST_F(SeveralRanksTest, WhatRank0HasPublishedStaysWhole) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    ASSERT_TRUE(save(run, rank, 1));
    ASSERT_TRUE(run.agree("", {}));
    // The rank that comes second fails, after its rename and once the other one has published.
    if (rank == 0) {
      fail_points::start_recording();
      ASSERT_TRUE(fail_points::arm(
          "commit.sealed=after:commit.manifest_synced@2;commit.seal_synced=error:EIO@2"));
    }
    ASSERT_TRUE(run.agree("", {}));
    const State state = state_at(2, rank);
    SaveRequest request{.step = 2, .tensors = table_of(state, rank)};
    request.tensors.back().guard = 1;
    request.confirm = rank == 1;  // it comes second: it can't seal before it is confirmed
    const auto handle = run.save(request);
    ASSERT_TRUE(handle && *handle);
    if (rank == 1) {
      EXPECT_TRUE(fail_points::await_recorded("commit.seal_synced"));
      EXPECT_TRUE((*handle)->wait_copied(kDeadline));
      (*handle)->confirm({});
    }
    const Status saved = (*handle)->wait(Level::kDurable, kDeadline);
    EXPECT_EQ(saved.has_value(), rank == 0);
    if (rank == 1 && !saved) {
      EXPECT_TRUE(saved.error().message().contains("outcome unknown")) << saved.error().message();
    }
    ASSERT_TRUE(run.agree("", {}));
  });
  fail_points::disarm();
  EXPECT_TRUE(is_listed(2));
  const auto listed = list_checkpoints(run_dir());
  for (const CheckpointInfo& info : *listed) {
    const auto faults = verify_checkpoint(info);
    EXPECT_TRUE(faults && faults->empty()) << info.path;
  }
}

// A collector deletes it, because another process has given it up.
TEST_F(SeveralRanksTest, AnAttemptThatIsDeletedMeanwhileIsNotMadeAgain) {
  fail_points::start_recording();
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const State state = state_at(1, rank);
    SaveRequest request{.step = 1, .tensors = table_of(state, rank)};
    request.tensors.back().guard = 1;
    request.confirm = rank == 1;
    const auto handle = run.save(request);
    ASSERT_TRUE(handle && *handle);
    if (rank == 1) {
      EXPECT_TRUE(fail_points::await_recorded("commit.seal_synced")) << "of rank 0";
      EXPECT_TRUE((*handle)->wait_copied(kDeadline));
      await_file_of_rank1();
      for (const std::string& name : names_in_run("step-")) fs::remove_all(run_dir() / name);
      (*handle)->confirm({});
    }
    EXPECT_FALSE((*handle)->wait(Level::kDurable, kDeadline));
  });
  EXPECT_EQ(names_in_run("step-"), std::vector<std::string>());
}

TEST_F(SeveralRanksTest, CapturesWhatItWritesBeforeTheSave) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const State state = state_at(1, rank);
    SaveRequest request{.step = 1, .tensors = table_of(state, rank)};
    for (Tensor& tensor : request.tensors) tensor.guard = 1;
    EXPECT_FALSE(run.begin_capture(request.tensors).value()) << "nobody knows who writes what";
    ASSERT_TRUE((*run.save(request))->wait(Level::kDurable, kDeadline));
    request.step = 2;
    ASSERT_TRUE(run.begin_capture(request.tensors).value());
    run.release(1);
    const auto handle = run.save(request);
    ASSERT_TRUE(handle && *handle);
    EXPECT_TRUE((*handle)->wait(Level::kDurable, kDeadline));
    EXPECT_TRUE((*handle)->status().early);
  });
}

TEST_F(SeveralRanksTest, OnlyRank0CollectsWhatHasExpired) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Options options;
    options.keep.last = 1;
    Checkpointer run = open(group, options);
    for (std::uint64_t step = 1; step <= 3; ++step) EXPECT_TRUE(save(run, rank, step));
  });
  EXPECT_EQ(names_in_run("step-").size(), 1U);
}

TEST_F(SeveralRanksTest, WhatCanNotBeCollectedNowGoesWithTheNextCommit) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    Checkpointer run = open(group);
    const auto try_with = [&](const char* failing, std::uint64_t step) {
      EXPECT_TRUE(rank != 0 || fail_points::arm(failing));
      EXPECT_TRUE(run.agree("", {}));
      const bool saved = save(run, rank, step).has_value();
      run.wait();
      EXPECT_TRUE(run.agree("", {}));
      if (rank == 0) fail_points::disarm();
      EXPECT_TRUE(run.agree("", {}));
      return saved;
    };
    EXPECT_FALSE(try_with("part.data_written=error:EIO@1", 1));
    EXPECT_TRUE(try_with("remove.files_removed=error:EIO@1", 2));
    EXPECT_EQ(names_in_run("step-").size(), 2U) << "what was aborted is there still";
    ASSERT_TRUE(run.agree("", {}));
    EXPECT_TRUE(save(run, rank, 3));
  });
  EXPECT_EQ(names_in_run("step-").size(), 2U) << "steps 2 and 3";
  EXPECT_EQ(names_in_run("step-000000000001").size(), 0U);
}

TEST_F(SeveralRanksTest, TheLongestWaitIsNotBehindAllClocks) {
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    auto run = Checkpointer::open(run_dir(), {.ranks = group,
                                              .profile = Profile::kLatency,
                                              .busy_wait_max = milliseconds::max(),
                                              .commit_wait_max = milliseconds::max()});
    ASSERT_TRUE(run);
    for (std::uint64_t step = 1; step < 3; ++step) {
      const Status saved = save(*run, rank, step);
      EXPECT_TRUE(saved) << saved.error().message();
    }
  });
}

TEST_F(SeveralRanksTest, AGroupOfImpossibleNumbersIsRefused) {
  class Impossible final : public RankGroup {
   public:
    [[nodiscard]] std::uint32_t rank() const override { return 2; }
    [[nodiscard]] std::uint32_t world_size() const override { return 2; }
    [[nodiscard]] Result<std::vector<std::string>> gather(std::string) override { return {}; }
    [[nodiscard]] Result<std::string> scatter(std::vector<std::string>) override { return {}; }
  };
  Options options;
  options.ranks = std::make_shared<Impossible>();
  EXPECT_EQ(code_of(Checkpointer::open(run_dir(), options)), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepfreeze::several_ranks_engine_test
