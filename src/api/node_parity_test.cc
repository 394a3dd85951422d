// Jobs whose nodes protect each other by parity: ranks are threads, nodes are directories.
#include "api/node_parity.h"

#include <fmt/ranges.h>

#include <fstream>

#include "api/near_nodes_fixture.h"

namespace deepfreeze::near_nodes_test {
namespace {

class NodeParityTest : public NearNodesTest {
 protected:
  static Change protected_by(Parity parity) {
    return [parity](Options& options) { options.protect = parity; };
  }
  // All ranks together: no parity can be written from here on.
  static void let_parity_fail(const Rank& rank) {
    rank.meet();
    if (rank.number == 0) {
      ASSERT_TRUE(fail_points::arm("parity.encoding=error:EIO"));
    }
    rank.meet();
  }
  // Pairs of nodes; those of the odd ranks are one, and its parity is slow.
  static Change one_pair_is_slow(std::uint64_t bytes_per_second, const Change& change) {
    return [bytes_per_second, change](Options& options) {
      options.protect = {.data = 1, .parity = 1};
      if (options.ranks->rank() % 2 == 1) options.protect->bytes_per_second = bytes_per_second;
      change(options);
    };
  }
  // All subsets of at most so many of the places.
  static std::vector<Places> subsets(const Places& places, std::size_t most) {
    std::vector<Places> all;
    for (std::uint32_t bits = 0; bits < (1U << places.size()); ++bits) {
      Places one;
      for (std::size_t i = 0; i < places.size(); ++i) {
        if ((bits >> i) % 2 == 1) one.push_back(places[i]);
      }
      if (one.size() <= most) all.push_back(std::move(one));
    }
    return all;
  }
  [[nodiscard]] std::size_t parity_files(const std::string& place) const {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path_of(place))) {
      count += is_parity_file_name(entry.path().filename().string()) ? 1 : 0;
    }
    return count;
  }
  // The path of the only parity file of that step; there must be one.
  [[nodiscard]] fs::path parity_file(const std::string& place, std::uint64_t step) const {
    for (const auto& entry : fs::recursive_directory_iterator(path_of(place))) {
      const auto attempt = parse_attempt_dir_name(entry.path().parent_path().filename().string());
      const bool is_it = is_parity_file_name(entry.path().filename().string());
      if (is_it && attempt && attempt->step == step) return entry.path();
    }
    ADD_FAILURE() << "no parity of step " << step << " in " << place;
    return {};
  }
  void copy_all(const Places& from, const std::string& to) const {
    for (const std::string& place : from) {
      fs::create_directories(path_of(to));
      fs::copy(path_of(place), path_of(to) / place, fs::copy_options::recursive);
    }
  }
  void put_back(const Places& places, const std::string& from) const {
    for (const std::string& place : places) {
      fs::remove_all(path_of(place));
      fs::copy(path_of(from) / place, path_of(place), fs::copy_options::recursive);
    }
  }
};

TEST_F(NodeParityTest, EachNodeHasParityOfEachCheckpoint) {
  run(
      {"a", "b", "b", "c"},
      [](const Rank& rank) {
        for (const std::uint64_t step : {1U, 2U}) {
          const Status saved = rank.try_save(step, Level::kProtected);
          EXPECT_TRUE(saved) << "rank " << rank.number << ": " << saved.error().message();
        }
      },
      protected_by({.data = 2, .parity = 1}));
  for (const char* place : {"a", "b", "c"}) EXPECT_EQ(parity_files(place), 2U) << place;
}

TEST_F(NodeParityTest, AnyLostNodesComeBack) {
  const Places places = {"a", "b", "c", "d"};
  for (const std::size_t parity : {1U, 2U}) {
    run(
        places,
        [](const Rank& rank) {
          rank.save(1);
          const Status saved = rank.try_save(2, Level::kProtected);
          EXPECT_TRUE(saved) << saved.error().message();
        },
        protected_by({.data = 4 - parity, .parity = parity}));
    const std::string copy = "copy" + std::to_string(parity);
    copy_all(places, copy);
    for (const Places& lost : subsets(places, parity)) {
      for (const std::string& place : lost) fs::remove_all(path_of(place));
      SCOPED_TRACE(fmt::format("{} lost of 4, {} of them parity", fmt::join(lost, " "), parity));
      run(places, [](const Rank& rank) { rank.expect(2); });
      if (HasFatalFailure()) return;
      put_back(places, copy);
    }
    for (const std::string& place : places) fs::remove_all(path_of(place));
  }
}

TEST_F(NodeParityTest, TheJobGoesOnProtectedAfterALoss) {
  const Places places = {"a", "b", "c"};
  const auto with_parity = protected_by({.data = 2, .parity = 1});
  run(
      places, [](const Rank& rank) { EXPECT_TRUE(rank.try_save(1, Level::kProtected)); },
      with_parity);
  std::uint64_t step = 1;
  for (const char* lost : {"b", "a", "c"}) {
    fs::remove_all(path_of(lost));
    const Body go_on = [&](const Rank& rank) {
      rank.expect(step);
      const Status saved = rank.try_save(step + 1, Level::kProtected);
      EXPECT_TRUE(saved) << lost << " lost: " << saved.error().message();
    };
    run(places, go_on, with_parity);
    ++step;
  }
}

TEST_F(NodeParityTest, OtherNumbersOfNodesAndRanksRestore) {
  run(
      {"a", "b", "c", "d"},
      [](const Rank& rank) { EXPECT_TRUE(rank.try_save(1, Level::kProtected)); },
      protected_by({.data = 2, .parity = 2}));
  fs::remove_all(path_of("a"));
  fs::remove_all(path_of("c"));
  // Two nodes are left, with a rank more; rank 2's generator was on a lost node.
  run({"b", "d", "d"}, [](const Rank& rank) { rank.expect(1); });
}

TEST_F(NodeParityTest, OneNodeTooManyIsTheOlderStepOfTheTier) {
  const std::string far = path_of("far").string();
  const auto with_tier = [&](Options& options) {
    options.protect = {.data = 2, .parity = 1};
    options.tiers = {{.path = far, .every = 10}};
  };
  run(
      {"a", "b", "c"},
      [](const Rank& rank) {
        EXPECT_TRUE(rank.try_save(10, Level::kDurable));
        EXPECT_TRUE(rank.try_save(11, Level::kProtected));
      },
      with_tier);
  fs::remove_all(path_of("a"));
  fs::remove_all(path_of("b"));
  run(
      {"a", "b", "c"},
      [](const Rank& rank) {
        State state;
        const auto restored = restore_newest(rank.run, targets_of(state, rank.number));
        ASSERT_TRUE(restored) << restored.error().message();
        EXPECT_EQ(restored->restored.step, 10U);
        ASSERT_EQ(restored->fell_back_from.size(), 1U);
        EXPECT_EQ(restored->fell_back_from.front().first.step, 11U);
        EXPECT_EQ(restored->fell_back_from.front().second.code(), ErrorCode::kIncomplete);
        EXPECT_TRUE(state == state_at(10, rank.number));
      },
      with_tier);
}

TEST_F(NodeParityTest, AFlippedBitIsCalculatedAnew) {
  const Places places = {"a", "b", "c"};
  run(
      places, [](const Rank& rank) { EXPECT_TRUE(rank.try_save(1, Level::kProtected)); },
      protected_by({.data = 2, .parity = 1}));
  for (const auto& entry : fs::recursive_directory_iterator(path_of("b"))) {
    if (!parse_sealed_file_name(entry.path().filename().string())) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1000, std::ios::end);
    file.put('\x5a');
  }
  run(places, [](const Rank& rank) { rank.expect(1); });
}

TEST_F(NodeParityTest, TheNewestProtectedCheckpointStaysUntilANewerOneIs) {
  const auto change = [](Options& options) {
    options.protect = {.data = 1, .parity = 1};
    options.keep = {.last = 1};
    options.drain_wait_max = milliseconds(0);  // the last ones end without parity
  };
  run(
      {"a", "b"},
      [](const Rank& rank) {
        ASSERT_TRUE(rank.try_save(1, Level::kProtected));
        let_parity_fail(rank);
        rank.save(2);
        rank.save(3);
      },
      change);
  fail_points::disarm();
  // Step 2 stays only if its parity was being written when step 3 was committed.
  for (const char* place : {"a", "b"}) {
    const Steps steps = steps_of(place);
    EXPECT_TRUE(steps == (Steps{3, 1}) || steps == (Steps{3, 2, 1}))
        << fmt::to_string(steps.size());
  }
  // Also for the next process, until it has protected a newer one.
  run(
      {"a", "b"},
      [](const Rank& rank) {
        rank.expect(3);
        rank.save(4);
        rank.meet();
        EXPECT_EQ(rank.run.candidates()->back().step, 1U);
        ASSERT_TRUE(rank.try_save(5, Level::kProtected));
        rank.save(6);
      },
      change);
  for (const char* place : {"a", "b"}) EXPECT_EQ(steps_of(place), (Steps{6, 5})) << place;
}

TEST_F(NodeParityTest, ClosingWaitsForParity) {
  run(
      {"a", "b", "c", "c"}, [](const Rank& rank) { rank.save(1); },
      protected_by({.data = 2, .parity = 1}));
  for (const char* place : {"a", "b", "c"}) EXPECT_EQ(parity_files(place), 1U) << place;
}

TEST_F(NodeParityTest, AFailureOfParityFailsNoSave) {
  const auto change = [](Options& options) {
    options.protect = {.data = 1, .parity = 1};
    options.drain_wait_max = milliseconds(2'000);
  };
  ASSERT_TRUE(fail_points::arm("parity.written=error:ENOSPC"));
  std::mutex mutex;
  std::vector<SaveHandle> handles;
  run(
      {"a", "b"},
      [&](const Rank& rank) {
        const State state = state_at(1, rank.number);
        auto handle = rank.run.save({.step = 1, .tensors = table_of(state, rank.number)});
        ASSERT_TRUE(handle);
        EXPECT_TRUE((*handle)->wait(Level::kDurable, kWaitMax));
        EXPECT_EQ(code_of((*handle)->wait(Level::kProtected, milliseconds(50))),
                  ErrorCode::kTimeout);
        const std::lock_guard lock(mutex);
        handles.push_back(**handle);
      },
      change);
  ASSERT_EQ(handles.size(), 2U);
  for (const SaveHandle& handle : handles) {
    EXPECT_EQ(code_of(handle.wait(Level::kProtected)), ErrorCode::kCancelled);
    EXPECT_FALSE(handle.status().is_protected);
    EXPECT_TRUE(handle.status().durable);
  }
  for (const char* place : {"a", "b"}) EXPECT_EQ(parity_files(place), 0U) << place;
}

TEST_F(NodeParityTest, ANewerCheckpointComesFirst) {
  ASSERT_TRUE(fail_points::arm("parity.encoding=error:EIO@1"));
  run(
      {"a", "b"},
      [](const Rank& rank) {
        std::vector<SaveHandle> handles;
        for (std::uint64_t step = 1; step <= 12; ++step) {
          const State state = state_at(step, rank.number);
          auto handle = rank.run.save({.step = step, .tensors = table_of(state, rank.number)});
          ASSERT_TRUE(handle);
          handles.push_back(**handle);
        }
        EXPECT_TRUE(handles.back().wait(Level::kProtected, kWaitMax));
        for (const SaveHandle& handle : handles) {
          const Status status = handle.wait(Level::kProtected, kWaitMax);
          if (status) continue;
          EXPECT_EQ(status.error().code(), ErrorCode::kCancelled) << status.error().message();
        }
      },
      protected_by({.data = 1, .parity = 1}));
}

// One group is slow: the others may not let go of a checkpoint that it needs.
TEST_F(NodeParityTest, GroupsOfDifferentSpeedHoldTheSameCheckpoint) {
  const Places places = {"a", "b", "c", "d"};
  const auto change = one_pair_is_slow(2'000'000, [](Options& options) {
    options.keep = {.last = 1};
    options.drain_wait_max = milliseconds(0);
  });
  for (const std::string& lost : places) {
    SCOPED_TRACE(lost);
    run(
        places,
        [](const Rank& rank) {
          EXPECT_TRUE(rank.try_save(1, Level::kProtected));
          for (const std::uint64_t step : {2U, 3U, 4U}) rank.save(step);
        },
        change);
    fs::remove_all(path_of(lost));
    run(places, [](const Rank& rank) {
      State state;
      const auto restored = restore_newest(rank.run, targets_of(state, rank.number));
      ASSERT_TRUE(restored) << "rank " << rank.number << ": " << restored.error().message();
      EXPECT_TRUE(state == state_at(restored->restored.step, rank.number));
    });
    for (const std::string& place : places) fs::remove_all(path_of(place));
  }
}

// Each group would like to protect another checkpoint than the other one: they must agree.
TEST_F(NodeParityTest, GroupsOfDifferentSpeedProtectTheNewestInTheEnd) {
  run(
      {"a", "b", "c", "d"},
      [](const Rank& rank) {
        for (std::uint64_t step = 1; step < 150; ++step) rank.save(step);
        const Status saved = rank.try_save(150, Level::kProtected);
        EXPECT_TRUE(saved) << "rank " << rank.number << ": " << saved.error().message();
      },
      one_pair_is_slow(20'000'000, unchanged));
}

// Saves come faster than parity, and nothing is kept but the newest.
TEST_F(NodeParityTest, ParityThatIsSlowerThanSavesStillProtects) {
  std::atomic<std::size_t> protected_saves{0};
  const Body save_often = [&](const Rank& rank) {
    std::vector<SaveHandle> handles;
    for (std::uint64_t step = 1; step <= 12; ++step) {
      const State state = state_at(step, rank.number);
      auto handle = rank.run.save({.step = step, .tensors = table_of(state, rank.number)});
      ASSERT_TRUE(handle);
      handles.push_back(**handle);
      std::this_thread::sleep_for(milliseconds(100));
    }
    for (const SaveHandle& handle : handles) {
      if (handle.wait(Level::kProtected, kWaitMax)) ++protected_saves;
    }
  };
  const Change slow = [](Options& options) {
    options.protect = {.data = 2, .parity = 1, .bytes_per_second = 4'000'000};
    options.keep = {.last = 1};
  };
  run({"a", "b", "c"}, save_often, slow);
  EXPECT_GE(protected_saves, 3U * 2);
}

// The collector of a farther tier's thread lets it stay as well.
TEST_F(NodeParityTest, AFlusherLeavesTheProtectedCheckpoint) {
  const std::string far = path_of("far").string();
  run(
      {"a", "b"},
      [](const Rank& rank) {
        ASSERT_TRUE(rank.try_save(1, Level::kProtected));
        let_parity_fail(rank);
        rank.save(2);
        rank.save(3);
        rank.meet();
        EXPECT_TRUE(rank.run.drain(kWaitMax));
      },
      [&](Options& options) {
        options.protect = {.data = 1, .parity = 1};
        options.keep = {.last = 1};
        options.tiers = {{.path = far, .every = 10}};
        options.drain_wait_max = milliseconds(0);
      });
  for (const char* place : {"a", "b"}) EXPECT_EQ(steps_of(place).back(), 1U) << place;
}

// Step 1 never gets parity: a rank that does not lead learns it from the mark of step 2.
TEST_F(NodeParityTest, ARankThatDoesNotLeadHearsOfAStepThatWasGivenUp) {
  ASSERT_TRUE(fail_points::arm("parity.encoding=error:ENOSPC@1"));
  run(
      {"a", "b", "b"},
      [](const Rank& rank) {
        std::vector<SaveHandle> handles;
        for (const std::uint64_t step : {1U, 2U, 3U, 4U}) {
          const State state = state_at(step, rank.number);
          auto handle = rank.run.save({.step = step, .tensors = table_of(state, rank.number)});
          ASSERT_TRUE(handle);
          handles.push_back(**handle);
        }
        EXPECT_TRUE(handles.back().wait(Level::kProtected, kWaitMax));
        for (const SaveHandle& handle : handles) {
          const Status status = handle.wait(Level::kProtected, kWaitMax);
          EXPECT_TRUE(status || status.error().code() == ErrorCode::kCancelled);
        }
      },
      protected_by({.data = 1, .parity = 1}));
}

TEST_F(NodeParityTest, WithoutProtectTheLevelIsAnError) {
  run({"a", "b"}, [](const Rank& rank) {
    EXPECT_EQ(code_of(rank.try_save(1, Level::kProtected)), ErrorCode::kUnsupported);
  });
  run(
      {"a", "a"},
      [](const Rank& rank) {
        EXPECT_EQ(code_of(rank.try_save(2, Level::kProtected)), ErrorCode::kUnsupported);
      },
      protected_by({.data = 1, .parity = 1}));
}

// Rank 2 does not lead its node: it waits for its leader's word as long as that one is there.
TEST_F(NodeParityTest, AtTheEndAllRanksOfANodeHearTheSame) {
  std::vector<std::optional<SaveHandle>> handles(3);
  run(
      {"a", "b", "b"},
      [&](const Rank& rank) {
        const State state = state_at(1, rank.number);
        const auto handle = rank.run.save({.step = 1, .tensors = table_of(state, rank.number)});
        ASSERT_TRUE(handle);
        handles[rank.number] = **handle;
      },
      [](Options& options) {
        options.protect = {.data = 1, .parity = 1, .bytes_per_second = 200'000};
      });
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    const Status told = handles[rank]->wait(Level::kProtected, milliseconds(0));
    EXPECT_TRUE(told) << "rank " << rank << ": " << told.error().message();
  }
}

// What open() says to every rank.
TEST_F(NodeParityTest, OptionsThatCanNotBeAreRefusedByEveryRank) {
  const auto code_of_open = [&](const Places& places, const std::vector<Options>& of_ranks) {
    std::set<std::optional<ErrorCode>> codes;
    std::mutex mutex;
    ThreadRanks(static_cast<std::uint32_t>(places.size()))
        .run([&](std::uint32_t rank, const std::shared_ptr<RankGroup>& group) {
          Options options = options_of(group);
          options.protect = of_ranks[rank].protect;
          const auto opened = Checkpointer::open(path_of(places[rank]), std::move(options));
          const std::lock_guard lock(mutex);
          codes.insert(code_of(opened));
        });
    EXPECT_EQ(codes.size(), 1U);
    return *codes.begin();
  };
  Options two;
  two.protect = {.data = 2, .parity = 2};
  Options one;
  one.protect = {.data = 2, .parity = 1};
  Options zero;
  zero.protect = {.data = 0, .parity = 1};
  EXPECT_EQ(code_of_open({"a", "b"}, {two, two}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of_open({"a", "b"}, {one, two}), ErrorCode::kMismatch);
  EXPECT_EQ(code_of_open({"a", "b"}, {one, Options{}}), ErrorCode::kMismatch);
  EXPECT_EQ(code_of_open({"a", "b"}, {zero, zero}), ErrorCode::kInvalidArgument);
  Options shared;
  shared.protect = one.protect;
  EXPECT_EQ(code_of(Checkpointer::open(path_of("x"), shared)), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepfreeze::near_nodes_test
