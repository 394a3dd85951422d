// Jobs whose nodes have near directories of their own: ranks are threads, nodes are directories.
#include "api/near_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "agreement/history_rounds.h"
#include "base/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/polling.h"
#include "base/try.h"
#include "deepfreeze/deepfreeze.h"
#include "manifest/commit.h"
#include "manifest/several_ranks.h"
#include "ranks/collective.h"
#include "storage/posix_vfs.h"
#include "support/code_of.h"
#include "support/no_more_threads.h"
#include "support/passing_vfs.h"
#include "support/scoped_dir.h"
#include "support/thread_ranks.h"

namespace deepfreeze::near_nodes_test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kWaitMax{60'000};  // for waits that must not hang
constexpr std::uint64_t kWeights = 1 << 19;

// A state that is equal on all ranks but for each rank's generator.
struct State {
  std::vector<float> weights = std::vector<float>(kWeights);
  std::vector<std::uint64_t> generator = std::vector<std::uint64_t>(9);
  bool operator==(const State&) const = default;
};

State state_at(std::uint64_t step, std::uint32_t rank) {
  State state;
  for (std::size_t i = 0; i < kWeights; ++i) {
    state.weights[i] = static_cast<float>(step * 1'000'000 + i);
  }
  std::ranges::fill(state.generator, 100 * step + rank);
  return state;
}

std::string generator_key(std::uint32_t rank) { return "@rank0000" + std::to_string(rank) + ".g"; }

TensorTable table_of(const State& state, std::uint32_t rank) {
  return {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {kWeights / 1024, 1024}},
           .data = std::as_bytes(std::span(state.weights))},
          {.spec = {.key = generator_key(rank), .dtype = DType::kU64, .shape = {9}},
           .data = std::as_bytes(std::span(state.generator))}};
}

std::vector<RestoreTarget> targets_of(State& state, std::uint32_t rank) {
  return {{"w", std::as_writable_bytes(std::span(state.weights))},
          {generator_key(rank), std::as_writable_bytes(std::span(state.generator))}};
}

class NearNodesTest : public testing::Test {
 protected:
  using Places = std::vector<std::string>;  // the directory of each rank
  struct Rank {
    std::uint32_t number;
    std::shared_ptr<RankGroup> group;
    Checkpointer& run;

    void save(std::uint64_t step) const {
      const Status saved = try_save(step);
      EXPECT_TRUE(saved) << "rank " << number << ": " << saved.error().message();
    }
    [[nodiscard]] Status try_save(std::uint64_t step, Level level = Level::kLocal) const {
      const State state = state_at(step, number);
      auto handle = run.save({.step = step,
                              .tensors = table_of(state, number),
                              .objects = "[" + std::to_string(number) + "]"});
      if (!handle) return std::unexpected(handle.error());
      return (*handle)->wait(level, kWaitMax);
    }
    void expect(std::uint64_t step) const {
      State state;
      const auto restored = restore_newest(run, targets_of(state, number));
      ASSERT_TRUE(restored) << "rank " << number << ": " << restored.error().message();
      EXPECT_EQ(restored->restored.step, step);
      EXPECT_TRUE(state == state_at(step, number)) << "rank " << number;
    }
    // Once all ranks are here.
    void meet() const { ASSERT_TRUE(run.agree("meet", {})); }
  };

  NearNodesTest() {
    set_log_sink([](std::string_view) {});
  }
  ~NearNodesTest() override {
    fail_points::disarm();
    set_log_sink({});
  }

  [[nodiscard]] fs::path path_of(const std::string& place) const { return root_.path() / place; }

  [[nodiscard]] static Options options_of(const std::shared_ptr<RankGroup>& group) {
    Options options;
    options.ranks = group;
    options.near = Near::kNode;
    options.link = "lo";
    options.commit_wait_max = milliseconds(20'000);
    options.profile = Profile::kLatency;
    return options;
  }
  using Body = std::function<void(const Rank&)>;
  using Change = std::function<void(Options&)>;
  static void unchanged(Options& /*options*/) {}
  void run(const Places& places, const Body& body, const Change& change = unchanged) const {
    ThreadRanks(static_cast<std::uint32_t>(places.size()))
        .run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
          Options options = options_of(group);
          change(options);
          auto opened = Checkpointer::open(path_of(places[rank]), std::move(options));
          ASSERT_TRUE(opened) << "rank " << rank << ": " << opened.error().message();
          body({rank, group, *opened});
          ASSERT_TRUE(opened->agree("meet", {}));
          ASSERT_TRUE(opened->close());
        });
  }

  // One of the ranks finds that its tensor has changed while it was captured.
  static Status save_torn(const Rank& rank, std::uint32_t failing, std::uint64_t step) {
    const bool fails = rank.number == failing;
    const State state = state_at(step, rank.number);
    TensorTable table = table_of(state, rank.number);
    if (fails) table.front().guard = 1;
    auto handle =
        rank.run.save({.step = step, .tensors = table, .objects = "[]", .confirm = fails});
    if (!handle) return std::unexpected(handle.error());
    if (fails) {
      rank.run.fence(1);
      EXPECT_TRUE((*handle)->wait_copied());
      (*handle)->confirm({"w"});
    }
    return (*handle)->wait(Level::kLocal, kWaitMax);
  }
  // The ranks that have files there.
  [[nodiscard]] std::set<std::uint32_t> ranks_with_files(const std::string& place) const {
    std::set<std::uint32_t> ranks;
    for (const auto& entry : fs::recursive_directory_iterator(path_of(place))) {
      const auto part = parse_sealed_file_name(entry.path().filename().string());
      if (part) ranks.insert(part->rank);
    }
    return ranks;
  }
  // How many there were.
  [[nodiscard]] std::size_t forget_manifest(const std::string& place, std::uint64_t step) const {
    std::size_t removed = 0;
    for (const auto& entry : fs::directory_iterator(path_of(place))) {
      const auto name = parse_attempt_dir_name(entry.path().filename().string());
      if (name && name->step == step) removed += fs::remove(entry.path() / kManifestFile) ? 1 : 0;
    }
    return removed;
  }
  [[nodiscard]] std::vector<std::uint64_t> steps_of(const std::string& place) const {
    std::vector<std::uint64_t> steps;
    const auto listed = list_checkpoints(path_of(place));
    EXPECT_TRUE(listed) << listed.error().message();
    for (const CheckpointInfo& info : *listed) {
      EXPECT_EQ(info.fault, "");
      steps.push_back(info.step);
    }
    return steps;
  }
  using Steps = std::vector<std::uint64_t>;

  // Nodes without a Checkpointer. `view` gives each rank's directory as open() gets it.
  using Opened = std::function<void(std::uint32_t rank, Vfs& vfs,
                                    const Result<std::shared_ptr<NearNodes>>& nodes)>;
  using View = std::function<std::unique_ptr<Vfs>(std::uint32_t rank, Vfs& vfs)>;
  static std::unique_ptr<Vfs> as_it_is(std::uint32_t /*rank*/, Vfs& vfs) {
    return std::make_unique<PassingVfs>(vfs);
  }
  void open_nodes(const Opened& body, const View& view = as_it_is,
                  const Places& places = {"a", "b"}) const {
    const ThreadRanks ranks(static_cast<std::uint32_t>(places.size()));
    ranks.run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
      fs::create_directories(path_of(places[rank]));
      const auto vfs = open_posix_vfs(path_of(places[rank])).value();
      const auto map = NodeMap::find(group.get(), *vfs, "host");
      ASSERT_TRUE(map && share_history(*group, *map, *vfs, {}));
      const std::string run_id = read_run(*vfs)->run.run_id;
      const auto seen = view(rank, *vfs);
      const auto nodes = NearNodes::open(*group, *map, *seen, run_id, "lo");
      body(rank, *vfs, nodes);
      ASSERT_TRUE(agree(group.get(), "meet", {}));
    });
  }

 private:
  ScopedDir root_;
};

TEST_F(NearNodesTest, EachNodeHasItsOwnFilesAndEveryManifest) {
  run({"a", "b", "b"}, [](const Rank& rank) {
    rank.save(1);
    rank.save(2);
  });
  using Ranks = std::set<std::uint32_t>;
  EXPECT_EQ(ranks_with_files("a"), Ranks{0});
  EXPECT_EQ(ranks_with_files("b"), (Ranks{1, 2}));
  for (const char* place : {"a", "b"}) EXPECT_EQ(steps_of(place), (Steps{2, 1}));
}

TEST_F(NearNodesTest, AJobGoesOnFromItsNodes) {
  run({"a", "b", "b"}, [](const Rank& rank) { rank.save(1); });
  run({"a", "b", "b"}, [](const Rank& rank) {
    rank.expect(1);
    rank.save(2);
  });
  // Rank 0 on another node than before, and other ranks there.
  run({"b", "a", "a"}, [](const Rank& rank) {
    rank.expect(2);
    rank.save(3);
  });
  for (const char* place : {"a", "b"}) EXPECT_EQ(steps_of(place), (Steps{3, 2, 1}));
}

TEST_F(NearNodesTest, ANodeThatHasJoinedReadsFromTheOthers) {
  run({"a", "b"}, [](const Rank& rank) { rank.save(1); });
  run({"c", "a", "b", "d"}, [](const Rank& rank) {
    if (rank.number < 2) return rank.expect(1);
    State state;  // its generator is new
    ASSERT_TRUE(restore_newest(rank.run, targets_of(state, 1)));
    EXPECT_EQ(state.weights, state_at(1, 0).weights);
  });
}

TEST_F(NearNodesTest, OldCheckpointsGoFromEveryNode) {
  const auto keep = [](Options& options) { options.keep = {.last = 1}; };
  run(
      {"a", "b"},
      [](const Rank& rank) {
        for (const std::uint64_t step : {1U, 2U, 3U}) rank.save(step);
      },
      keep);
  for (const char* place : {"a", "b"}) EXPECT_EQ(steps_of(place), Steps{3}) << place;
}

// Rank 2 leads no node.
TEST_F(NearNodesTest, AFailureOnAnyNodeIsEveryRanks) {
  for (const std::uint32_t failing : {0U, 1U, 2U}) {
    SCOPED_TRACE("rank " + std::to_string(failing));
    const std::uint64_t step = 10 * failing;
    run({"a", "b", "b"}, [&](const Rank& rank) {
      rank.save(step + 1);
      const Status failed = save_torn(rank, failing, step + 2);
      ASSERT_FALSE(failed);
      EXPECT_FALSE(failed.error().message().contains("unknown")) << failed.error().message();
      rank.save(step + 3);
    });
    for (const char* place : {"a", "b"}) {
      EXPECT_EQ(steps_of(place).front(), step + 3);
      EXPECT_EQ(steps_of(place).size(), 2 * (failing + 1)) << place;
    }
  }
}

TEST_F(NearNodesTest, FilesComeFromThisNodeAnotherOneAndAFartherTier) {
  const std::string far = path_of("far").string();
  const auto with_tier = [&](Options& options) { options.tiers = {{.path = far}}; };
  run(
      {"a", "b", "c", "d"},
      [](const Rank& rank) {
        EXPECT_TRUE(rank.try_save(1, Level::kDurable));
        const Status durable = rank.try_save(2, Level::kDurable);
        EXPECT_TRUE(durable) << durable.error().message();
      },
      with_tier);
  EXPECT_EQ(steps_of("far"), (Steps{2, 1}));
  EXPECT_EQ(ranks_with_files("far").size(), 4U);
  // Two of the four nodes are left; one of them has lost its disk.
  fs::remove_all(path_of("b"));
  run({"a", "b"}, [](const Rank& rank) { rank.expect(2); }, with_tier);
  EXPECT_EQ(ranks_with_files("a"), std::set<std::uint32_t>{0}) << "a node keeps its own files";
  EXPECT_EQ(ranks_with_files("b"), std::set<std::uint32_t>{});
}

// Its leader ended between the commit and the manifest on its own node. Rank 0 may have been told.
TEST_F(NearNodesTest, FilesCountOnANodeThatHasNotHeardOfTheCommit) {
  for (const Places& places : {Places{"a", "b", "b"}, Places{"b", "b", "a"}}) {
    run({"a", "b", "b"}, [](const Rank& rank) {
      rank.save(1);
      rank.save(2);
    });
    ASSERT_EQ(forget_manifest("b", 2), 1U);
    run(places, [](const Rank& rank) {
      rank.expect(2);
      rank.save(3);
    });
    EXPECT_EQ(steps_of("b"), (Steps{3, 2, 1}));
    for (const char* place : {"a", "b"}) fs::remove_all(path_of(place));
  }
}

TEST_F(NearNodesTest, AJobWhoseNodesAreAllLostGoesOnFromTheTier) {
  const std::string far = path_of("far").string();
  const auto with_tier = [&](Options& options) { options.tiers = {{.path = far}}; };
  run(
      {"a", "b"}, [](const Rank& rank) { EXPECT_TRUE(rank.try_save(1, Level::kDurable)); },
      with_tier);
  run(
      {"c", "d", "d"},
      [](const Rank& rank) {
        if (rank.number < 2) rank.expect(1);
        if (rank.number == 2) {
          State state;
          ASSERT_TRUE(restore_newest(rank.run, targets_of(state, 0)));
        }
        EXPECT_TRUE(rank.try_save(2, Level::kDurable));
      },
      with_tier);
  EXPECT_EQ(steps_of("far"), (Steps{2, 1}));
}

// Two jobs on different nodes, with one tier: the second has claimed and saved since the first has
// opened the run.
TEST_F(NearNodesTest, AClaimLooksAtTheTiers) {
  const std::string far = path_of("far").string();
  const auto with_tier = [&](Options& options) { options.tiers = {{.path = far}}; };
  run(
      {"a", "b"},
      [&](const Rank& rank) {
        if (rank.number == 0) {
          // Else the other job would find no run on the tier, and begin another one.
          Polling polling(std::chrono::seconds(20));
          while (!fs::exists(far + "/deepfreeze.json")) ASSERT_TRUE(polling.again());
          run(
              {"c", "d"},
              [](const Rank& other) { EXPECT_TRUE(other.try_save(1, Level::kDurable)); },
              with_tier);
        }
        rank.meet();
        EXPECT_TRUE(rank.try_save(2, Level::kDurable));
      },
      with_tier);
  run({"a", "b"}, [](const Rank& rank) { rank.expect(2); }, with_tier);
}

// The second report of an attempt stands for one whose answer was lost with its link. Rank 0 has no
// save under way.
TEST_F(NearNodesTest, RankZeroAnswersBetweenItsSaves) {
  ThreadRanks(2).run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
    const auto directory = path_of(rank == 0 ? "a" : "b");
    fs::create_directories(directory);
    const auto vfs = open_posix_vfs(directory).value();
    const auto map = NodeMap::find(group.get(), *vfs, "host");
    ASSERT_TRUE(map && share_history(*group, *map, *vfs, {}));
    RunWriter writer = RunWriter::open(*vfs, {}).value();
    writer.decides_as(map->nodes().front().digits);
    const auto nodes = NearNodes::open(*group, *map, *vfs, writer.record().run_id, "lo").value();
    ASSERT_TRUE(nodes->claim(writer, 1));
    Identity identity{
        .run_id = writer.record().run_id, .attempt_id = 7, .generation = 1, .step = 1};
    identity.part = {.rank = rank, .world_size = 2, .file = 0, .file_count = 1};
    ASSERT_TRUE(join_attempt(*vfs, {1, 7}));
    const NodeSave failed{.identity = identity,
                          .commit_wait_max = milliseconds(10'000),
                          .failure = Error(ErrorCode::kIo, "no disk")};
    if (rank == 0) {
      nodes->begin(identity);
      EXPECT_EQ(code_of(nodes->commit(failed)), ErrorCode::kIo);
    } else {
      for (int report = 0; report < 2; ++report) {
        EXPECT_EQ(code_of(nodes->commit(failed)), ErrorCode::kCancelled) << report;
        std::ignore = remove_attempt(*vfs, {1, 7});
        ASSERT_TRUE(join_attempt(*vfs, {1, 7}));
      }
    }
    ASSERT_TRUE(agree(group.get(), "meet", {}));
  });
}

class NowhereVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  [[nodiscard]] std::string path_of(std::string_view /*name*/) const override { return "/nowhere"; }
};

TEST_F(NearNodesTest, ANodeThatCannotStartIsEveryRanksError) {
  const View nowhere = [](std::uint32_t rank, Vfs& vfs) -> std::unique_ptr<Vfs> {
    if (rank == 1) return std::make_unique<NowhereVfs>(vfs);
    return as_it_is(rank, vfs);
  };
  open_nodes(
      [](std::uint32_t, Vfs&, const auto& nodes) {
        ASSERT_FALSE(nodes);
        EXPECT_TRUE(nodes.error().message().contains("rank 1")) << nodes.error().message();
      },
      nowhere);
}

// From the second time on that it is asked for its path, when all threads but the last have begun,
// the system refuses threads.
class LastThreadVfs final : public PassingVfs {
 public:
  using PassingVfs::PassingVfs;
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    if (name.empty() && ++asked_ == 2) refused_.emplace();
    return PassingVfs::path_of(name);
  }

 private:
  mutable int asked_ = 0;
  mutable std::optional<NoMoreThreads> refused_;
};

TEST_F(NearNodesTest, RankZeroNeedsAThreadThatAnswers) {
  const View last = [](std::uint32_t rank, Vfs& vfs) -> std::unique_ptr<Vfs> {
    if (rank == 0) return std::make_unique<LastThreadVfs>(vfs);
    return as_it_is(rank, vfs);
  };
  open_nodes(
      [](std::uint32_t, Vfs&, const auto& nodes) {
        ASSERT_EQ(code_of(nodes), ErrorCode::kNoSpace);
        EXPECT_TRUE(nodes.error().message().contains("rank 0")) << nodes.error().message();
      },
      last);
}

TEST_F(NearNodesTest, AListingThatFailsOnARankThatDoesNotLeadIsItsOwnError) {
  const Opened lists = [](std::uint32_t rank, Vfs& vfs, const auto& nodes) {
    ASSERT_TRUE(nodes);
    auto own = read_run(vfs);
    if (rank == 2) own = fail(ErrorCode::kIo, "no disk");
    const auto others = (*nodes)->list_others(own);
    EXPECT_EQ(code_of(others), rank == 2 ? std::optional(ErrorCode::kIo) : std::nullopt);
  };
  open_nodes(lists, as_it_is, {"a", "b", "b"});
}

TEST_F(NearNodesTest, AManifestOfAnotherNodeMayBeGoneButNotUnreadable) {
  run({"a", "b"}, [](const Rank& rank) { rank.save(1); });
  ASSERT_EQ(forget_manifest("a", 1), 1U);
  const auto far = open_posix_vfs(path_of("b")).value();
  const RunListing listed = read_run(*far).value();
  ASSERT_EQ(forget_manifest("b", 1), 1U);
  const fs::path manifest =
      path_of("b") / attempt_dir_name(listed.attempts.front().name) / kManifestFile;
  for (const bool is_gone : {true, false}) {
    if (!is_gone) fs::create_directory(manifest);
    open_nodes([&](std::uint32_t rank, Vfs& vfs, const auto& nodes) {
      ASSERT_TRUE(nodes);
      const auto others = (*nodes)->list_others(rank == 0 ? read_run(vfs) : listed);
      if (rank == 1) return;
      EXPECT_EQ(code_of(others), is_gone ? std::nullopt : std::optional(ErrorCode::kIo));
      if (!others) return;
      EXPECT_TRUE(others->front().listing.attempts.empty());
    });
  }
}

// Another job has claimed on a node that is not rank 0's.
TEST_F(NearNodesTest, AFencedJobIsToldAtOnce) {
  run({"a", "b", "b"}, [&](const Rank& rank) {
    rank.save(1);
    rank.meet();
    if (rank.number == 0) run({"b"}, [](const Rank& other) { other.save(2); });
    rank.meet();
    const auto began = Monotonic::now();
    for (const std::uint64_t step : {3U, 4U}) {
      const Status fenced = rank.try_save(step);
      ASSERT_FALSE(fenced);
      const bool leads = rank.number < 2;  // the third hears that rank 0 has given it up
      EXPECT_EQ(fenced.error().message().contains("fenced"), leads) << fenced.error().message();
    }
    EXPECT_LT(Monotonic::now() - began, milliseconds(20'000)) << "nobody waited for a report";
  });
}

TEST_F(NearNodesTest, WithoutATierALostNodesFilesAreMissedByName) {
  run({"a", "b"}, [](const Rank& rank) { rank.save(1); });
  fs::remove_all(path_of("b"));
  run({"a", "b"}, [](const Rank& rank) {
    State state;
    const auto restored = restore_newest(rank.run, targets_of(state, rank.number));
    ASSERT_EQ(code_of(restored), ErrorCode::kIncomplete);
    EXPECT_TRUE(restored.error().message().contains("rank-00001")) << restored.error().message();
  });
}

TEST_F(NearNodesTest, AllRanksHaveNodesOrNone) {
  ThreadRanks(2).run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
    Options options = options_of(group);
    if (rank == 0) options.near = Near::kShared;
    const auto run = Checkpointer::open(path_of("a"), std::move(options));
    ASSERT_EQ(code_of(run), ErrorCode::kMismatch);
    EXPECT_TRUE(run.error().message().contains("open with near=\"node\"")) << run.error().message();
  });
}

TEST_F(NearNodesTest, OneDirectoryIsOneNode) {
  run({"a", "a"}, [](const Rank& rank) {
    rank.save(1);
    rank.expect(1);
  });
  ThreadRanks(2).run([&](std::uint32_t, const std::shared_ptr<RankGroup>& group) {
    Options options = options_of(group);
    options.near = Near::kShared;
    EXPECT_TRUE(Checkpointer::open(path_of("a"), options)) << "the run is one like any other";
  });
}

}  // namespace
}  // namespace deepfreeze::near_nodes_test
