// Jobs whose nodes have near directories of their own: ranks are threads, nodes are directories.
#pragma once

#include <gtest/gtest.h>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include "agreement/history_rounds.h"
#include "api/near_nodes.h"
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

namespace fs = std::filesystem;
using std::chrono::milliseconds;

inline constexpr milliseconds kWaitMax{60'000};  // for waits that must not hang
inline constexpr std::uint64_t kWeights = 1 << 19;

// A state that is equal on all ranks but for each rank's generator.
struct State {
  std::vector<float> weights = std::vector<float>(kWeights);
  std::vector<std::uint64_t> generator = std::vector<std::uint64_t>(9);
  bool operator==(const State&) const = default;
};

inline State state_at(std::uint64_t step, std::uint32_t rank) {
  State state;
  for (std::size_t i = 0; i < kWeights; ++i) {
    state.weights[i] = static_cast<float>(step * 1'000'000 + i);
  }
  std::ranges::fill(state.generator, 100 * step + rank);
  return state;
}

inline std::string generator_key(std::uint32_t rank) {
  return "@rank0000" + std::to_string(rank) + ".g";
}

inline TensorTable table_of(const State& state, std::uint32_t rank) {
  return {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {kWeights / 1024, 1024}},
           .data = std::as_bytes(std::span(state.weights))},
          {.spec = {.key = generator_key(rank), .dtype = DType::kU64, .shape = {9}},
           .data = std::as_bytes(std::span(state.generator))}};
}

inline std::vector<RestoreTarget> targets_of(State& state, std::uint32_t rank) {
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

}  // namespace deepfreeze::near_nodes_test
