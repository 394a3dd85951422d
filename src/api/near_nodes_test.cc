#include "api/near_nodes_fixture.h"

namespace deepfreeze::near_nodes_test {
namespace {

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
