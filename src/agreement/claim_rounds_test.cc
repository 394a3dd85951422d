#include "agreement/claim_rounds.h"

#include <fstream>
#include <optional>

#include "agreement/history_rounds.h"
#include "agreement/node_fixture.h"
#include "base/try.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/name_kind.h"
#include "manifest/run_directory.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"

namespace deepfreeze::claim_rounds_test {
namespace {

class ClaimRounds : public node_test::NodesTest {
 protected:
  using Writer = std::function<void(RunWriter&)>;

  // Opens the run on these nodes, and claims for `step`; `with` gets rank 0's writer before.
  void claim(
      const std::vector<std::string>& places, std::uint64_t step,
      std::optional<ErrorCode> wanted = {}, const Writer& with = [](RunWriter&) {}) {
    run(places, [&](const Rank& rank) {
      ASSERT_TRUE(share_history(rank.group, rank.nodes, rank.vfs, {}));
      RunWriter writer = RunWriter::open(rank.vfs, {}).value();
      writer.decides_as(rank.nodes.nodes().front().digits);
      if (rank.group.rank() == 0) with(writer);
      ASSERT_TRUE(agree(rank));
      const auto claimed = claim_on_nodes(rank.group, rank.nodes, rank.vfs, writer, step);
      EXPECT_EQ(code_of(claimed), wanted) << (claimed ? "" : claimed.error().message());
      if (!claimed || rank.group.rank() != 0) return;
      const auto identity = writer.identity_if_claimed(step);
      ASSERT_TRUE(identity && *identity);
      issued_ = **identity;
    });
  }
  // So that `with` has ended before the rounds begin.
  static bool agree(const Rank& rank) {
    return rank.group.gather("").has_value() &&
           rank.group
               .scatter(rank.group.rank() == 0 ? std::vector<std::string>(rank.group.world_size())
                                               : std::vector<std::string>())
               .has_value();
  }

  [[nodiscard]] RunListing listing_of(const std::string& place) const {
    return read_run(*vfs_of(place)).value();
  }
  [[nodiscard]] GenerationRecord newest_claim(const std::string& place) const {
    return listing_of(place).claims.back().record.value();
  }

  Identity issued_;
};

TEST_F(ClaimRounds, AllNodesHaveTheClaimOfRankZero) {
  claim({"a", "b", "b", "c"}, 1);
  const GenerationRecord claimed = newest_claim("a");
  EXPECT_EQ(claimed.generation, 1U);
  EXPECT_TRUE(claimed.node.has_value());
  for (const char* place : {"b", "c"}) EXPECT_EQ(newest_claim(place), claimed);
  EXPECT_EQ(issued_.generation, 1U);
  claim({"c", "a"}, 1);
  EXPECT_EQ(newest_claim("a").generation, 2U);
  EXPECT_EQ(newest_claim("b").generation, 1U) << "it was not there";
  EXPECT_NE(newest_claim("a").node, claimed.node);
}

TEST_F(ClaimRounds, AnotherJobsClaimOnAnyNodeFencesAProcess) {
  claim({"a", "b"}, 1);
  claim({"a", "b"}, 1, ErrorCode::kFenced, [&](RunWriter& writer) {
    ASSERT_TRUE(writer.begin_claim(1, {}));  // it has had a right to the run
    ASSERT_TRUE(claim_generation(*vfs_of("b"), writer.record().run_id, {}, {.claimant = 77}));
    ASSERT_TRUE(claim_generation(*vfs_of("b"), writer.record().run_id, {}, {.claimant = 77}));
  });
}

// Another job claims on this node just before it places the claim of its own.
class OvertakenNode final : public PassingVfs {
 public:
  explicit OvertakenNode(Vfs& disk) : PassingVfs(disk) {}
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    if (to.starts_with("generation-")) {
      DF_TRY_VOID(write_new_file(disk_, generation_file_name(90), "another job's"));
    }
    return PassingVfs::rename_no_replace(from, to);
  }
};

TEST_F(ClaimRounds, AHigherClaimOnAnyNodeIsEveryRanksError) {
  claim({"a", "b"}, 1);
  run({"a", "b", "a"}, [&](const Rank& rank) {
    RunWriter writer = RunWriter::open(rank.vfs, {}).value();
    OvertakenNode overtaken(rank.vfs);
    Vfs& vfs = rank.group.rank() == 1 ? overtaken : rank.vfs;
    const auto claimed = claim_on_nodes(rank.group, rank.nodes, vfs, writer, 2);
    EXPECT_EQ(code_of(claimed), ErrorCode::kFenced);
    if (rank.group.rank() == 0) {
      EXPECT_EQ(writer.identity_if_claimed(2), std::nullopt);
    }
  });
}

TEST_F(ClaimRounds, AClaimThatLostIsKeptUnderAnotherName) {
  claim({"a", "b"}, 1);
  const std::string run = listing_of("a").run.run_id;
  ASSERT_TRUE(claim_generation(*vfs_of("a"), run, {}, {.claimant = 11}));
  ASSERT_TRUE(claim_generation(*vfs_of("b"), run, {}, {.claimant = 22}));
  claim({"b", "a"}, 1);
  for (const char* place : {"a", "b"}) {
    const RunListing listing = listing_of(place);
    ASSERT_EQ(listing.claims.size(), 3U);
    EXPECT_EQ(listing.claims[1].record->claimant, 22U) << "that of the first node";
    EXPECT_EQ(listing.claims[2].generation, 3U);
  }
  std::size_t kept = 0;
  const std::vector<DirEntry> entries = vfs_of("a")->list("").value();
  for (const DirEntry& entry : entries) {
    if (entry.name.starts_with("generation-00000002.void-")) ++kept;
  }
  EXPECT_EQ(kept, 1U);
}

// Its process seals a file right before the claim that fences it.
class UsedNode final : public PassingVfs {
 public:
  UsedNode(Vfs& disk, Identity identity) : PassingVfs(disk), identity_(std::move(identity)) {}
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    if (to == generation_file_name(3)) {
      DF_TRY_VOID(begin_attempt(disk_, {identity_.step, identity_.attempt_id}));
      DF_TRY_VOID(write_and_seal(disk_, identity_));
    }
    return PassingVfs::rename_no_replace(from, to);
  }

 private:
  const Identity identity_;
};

TEST_F(ClaimRounds, AClaimThatIsUsedMeanwhileDoesNotLose) {
  claim({"a", "b"}, 1);
  const std::string run_id = listing_of("a").run.run_id;
  // Of a node that is not in this job, so that its attempts are in doubt here.
  ASSERT_TRUE(claim_generation(*vfs_of("a"), run_id, {}, {.claimant = 11, .node = 77}));
  ASSERT_TRUE(claim_generation(*vfs_of("b"), run_id, {}, {.claimant = 22}));
  run({"b", "a"}, [&](const Rank& rank) {
    RunWriter writer = RunWriter::open(rank.vfs, {}).value();
    UsedNode used(rank.vfs, make_identity(run_id, {2, 5, 5, 0xb5}, {0, 1, 0, 1}));
    Vfs& vfs = rank.group.rank() == 1 ? static_cast<Vfs&>(used) : rank.vfs;
    const auto claimed = claim_on_nodes(rank.group, rank.nodes, vfs, writer, 2);
    EXPECT_EQ(code_of(claimed), ErrorCode::kMismatch);
  });
  EXPECT_EQ(listing_of("a").claims[1].record->claimant, 11U);
}

TEST_F(ClaimRounds, TheNextSaveIsNewerThanThoseOfAllNodes) {
  claim({"a", "b"}, 1);
  Manifest manifest;
  manifest.outcome = Outcome::kAborted;
  manifest.run_id = listing_of("b").run.run_id;
  manifest.point = {.generation = 1, .step = 4, .save_index = 50, .attempt_id = 5};
  const auto b = vfs_of("b");
  ASSERT_TRUE(begin_attempt(*b, {.step = 4, .attempt_id = 5}));
  ASSERT_TRUE(abort_attempt(*b, manifest));
  claim({"a", "b"}, 5);
  EXPECT_EQ(issued_.save_index, 51U);
}

TEST_F(ClaimRounds, ANumberThatADamagedClaimHasIsTaken) {
  claim({"a", "b"}, 1);
  std::ofstream(path_of("b") / "generation-00000004.json") << "damaged";
  claim({"a", "b", "a"}, 2);
  EXPECT_EQ(newest_claim("a").generation, 5U);
  EXPECT_EQ(newest_claim("b"), newest_claim("a"));
}

}  // namespace
}  // namespace deepfreeze::claim_rounds_test
