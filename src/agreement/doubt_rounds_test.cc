#include "agreement/doubt_rounds.h"

#include <filesystem>
#include <fstream>

#include "agreement/claim_rounds.h"
#include "agreement/history_rounds.h"
#include "agreement/longer_messages.h"
#include "agreement/node_fixture.h"
#include "base/log.h"
#include "crash/attempt_maker.h"
#include "manifest/commit.h"
#include "manifest/run_directory.h"
#include "support/code_of.h"

namespace deepfreeze::doubt_rounds_test {
namespace {

// Two nodes: rank 0 on the first, which decides, and rank 1 on the second.
class DoubtRounds : public node_test::NodesTest {
 protected:
  DoubtRounds() {
    set_log_sink([](std::string_view) {});
  }
  ~DoubtRounds() override { set_log_sink({}); }

  void claim(const std::vector<std::string>& places) {
    run(places, [&](const Rank& rank) {
      ASSERT_TRUE(share_history(rank.group, rank.nodes, rank.vfs, {}));
      RunWriter writer = RunWriter::open(rank.vfs, {}).value();
      writer.decides_as(rank.nodes.nodes().front().digits);
      ASSERT_TRUE(claim_on_nodes(rank.group, rank.nodes, rank.vfs, writer, 9));
    });
  }
  // As a job that was killed leaves it: both files are sealed.
  Identity seal(std::uint64_t step) {
    const RunListing listing = listing_of("a");
    Identity identity =
        make_identity(listing.run.run_id,
                      {listing.claims.back().generation, step, step, 0xb0 + step}, {0, 2, 0, 1});
    const AttemptName name{identity.step, identity.attempt_id};
    for (const char* place : {"a", "b"}) {
      const auto vfs = vfs_of(place);
      EXPECT_TRUE(begin_attempt(*vfs, name));
      EXPECT_TRUE(write_and_seal(*vfs, identity));
      ++identity.part.rank;
    }
    identity.part.rank = 0;
    return identity;
  }
  [[nodiscard]] RunListing listing_of(const std::string& place) const {
    return read_run(*vfs_of(place)).value();
  }
  [[nodiscard]] std::string manifest_of(const std::string& place, const Identity& identity) const {
    const std::string path =
        attempt_dir_name({identity.step, identity.attempt_id}) + "/" + std::string(kManifestFile);
    return read_file(*vfs_of(place), path, kManifestBytesMax).value_or("");
  }
};

TEST_F(DoubtRounds, ACommitThatANodeHasNotHeardOfIsItsOwnFromTheNextClaimOn) {
  claim({"a", "b"});
  const Identity identity = seal(3);
  const auto a = vfs_of("a");
  // The other part, as rank 0 would know it from its leader's report.
  const auto b = vfs_of("b");
  const std::string directory = attempt_dir_name({identity.step, identity.attempt_id});
  const std::string other = sealed_file_name({1, 2, 0, 1});
  std::filesystem::copy(path_of("b") / directory / other, path_of("a") / directory / other);
  ASSERT_TRUE(commit_attempt(*a, {.identity = identity, .world_size = 2, .own = {}}));
  std::filesystem::remove(path_of("a") / directory / other);
  ASSERT_TRUE(listing_of("b").attempts.at(0).doubt);
  claim({"a", "b"});
  EXPECT_TRUE(listing_of("b").attempts.at(0).committed());
  EXPECT_EQ(manifest_of("b", identity), manifest_of("a", identity));
}

TEST_F(DoubtRounds, AnAttemptThatTheDecidingNodeHasAbortedGoes) {
  claim({"a", "b"});
  seal(3);
  claim({"b", "a"});
  for (const char* place : {"a", "b"}) EXPECT_TRUE(listing_of(place).attempts.empty()) << place;
}

TEST_F(DoubtRounds, AnAttemptOfANodeThatIsAwayStaysInDoubt) {
  claim({"a", "b"});
  seal(3);
  claim({"b", "c"});
  ASSERT_EQ(listing_of("b").attempts.size(), 1U);
  EXPECT_TRUE(listing_of("b").attempts[0].doubt);
  claim({"c", "a", "b"});
  EXPECT_TRUE(listing_of("b").attempts.empty());
}

TEST_F(DoubtRounds, ARecordThatDoesNotVerifyIsNoAnswer) {
  claim({"a", "b"});
  const Identity identity = seal(3);
  const std::string directory = attempt_dir_name({identity.step, identity.attempt_id});
  std::ofstream(path_of("a") / directory / kManifestFile) << "damaged";
  claim({"a", "b"});
  ASSERT_EQ(listing_of("b").attempts.size(), 1U);
  EXPECT_TRUE(listing_of("b").attempts[0].doubt);
}

TEST_F(DoubtRounds, MessagesThatGoOnAreRefused) {
  claim({"a", "b"});
  seal(3);
  for (const char* call : {"ask about attempts", "answer about attempts"}) {
    run({"a", "b"}, [&](const Rank& rank) {
      node_test::LongerMessages group(rank.group, call, node_test::Longer::kText);
      EXPECT_EQ(code_of(settle_doubts_of_job(group, rank.nodes, rank.vfs)), ErrorCode::kInternal)
          << call;
    });
  }
}

}  // namespace
}  // namespace deepfreeze::doubt_rounds_test
