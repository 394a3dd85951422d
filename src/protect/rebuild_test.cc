// Checkpoints of which nodes are lost, or files damaged: all bytes come back, or an error does.
#include <bit>
#include <cerrno>

#include "base/fail_point.h"
#include "protect/member_stream.h"
#include "protect/protect_fixture.h"
#include "storage/os_error.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"
#include "support/sanitized.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kStep = 100'000;

void expect_file(Cluster& cluster, Vfs& files, const std::string& path, std::size_t step = kStep) {
  const auto found = read_whole(files, path, step);
  ASSERT_TRUE(found) << path << ": " << found.error().message();
  ASSERT_TRUE(*found == cluster.files().at(path)) << path;
}

// Also those that are there: so there may be one loss less.
void expect_all(Cluster& cluster) {
  const auto rebuilt = cluster.rebuilt();
  for (const auto& [path, bytes] : cluster.files()) {
    expect_file(cluster, *rebuilt.files, path);
  }
}

void expect_files_of(Cluster& cluster, std::size_t node, std::size_t step = kStep) {
  const auto rebuilt = cluster.rebuilt();
  for (const ManifestFile& file : cluster.members()[node].files) {
    expect_file(cluster, *rebuilt.files, cluster.directory() + "/" + file.name, step);
  }
}

// All sets of at most `most` of so many nodes.
std::vector<std::vector<std::size_t>> subsets(std::size_t nodes, std::size_t most) {
  std::vector<std::vector<std::size_t>> all;
  for (std::uint32_t bits = 0; bits < (1U << nodes); ++bits) {
    if (static_cast<std::size_t>(std::popcount(bits)) > most) continue;
    std::vector<std::size_t> one;
    for (std::size_t node = 0; node < nodes; ++node) {
      if ((bits >> node) % 2 == 1) one.push_back(node);
    }
    all.push_back(std::move(one));
  }
  return all;
}

void lose_all_subsets(std::size_t nodes, std::size_t parity) {
  Cluster cluster(nodes, 1 + nodes % 2, 150'000, 10 * nodes + parity);
  cluster.protect_all(parity);
  const auto whole = cluster.copies();
  for (const auto& lost : subsets(nodes, parity)) {
    for (const std::size_t node : lost) cluster.lose(node);
    for (const std::size_t node : lost) expect_files_of(cluster, node);
    if (lost.size() < parity) expect_all(cluster);
    cluster.put_back(whole);
  }
}

TEST(Rebuild, AllSubsetsOfLostNodes) {
  const std::size_t most = kSanitized ? 4 : 8;
  for (std::size_t nodes = 2; nodes <= most; ++nodes) {
    for (std::size_t parity = 1; parity <= std::min<std::size_t>(2, nodes - 1); ++parity) {
      lose_all_subsets(nodes, parity);
    }
  }
}

TEST(Rebuild, OneNodeTooManyIsAnErrorThatNamesThem) {
  Cluster cluster(5, 1, 100'000, 3);
  cluster.protect_all(2);
  for (const std::size_t node : {0UL, 2UL, 4UL}) cluster.lose(node);
  const auto rebuilt = cluster.rebuilt();
  std::size_t refused = 0;
  for (const auto& [path, bytes] : cluster.files()) {
    const auto found = read_whole(*rebuilt.files, path, kStep);
    if (found) {
      EXPECT_EQ(*found, bytes);
    } else {
      ++refused;
      EXPECT_EQ(found.error().code(), ErrorCode::kIncomplete);
      EXPECT_NE(found.error().message().find("are needed"), std::string::npos);
      EXPECT_NE(found.error().message().find("parity of node"), std::string::npos);
    }
  }
  EXPECT_GE(refused, 3U);
}

// The fate of the only lost node's files if one read of another node's disk fails.
Status rebuild_with_one_failure(std::size_t read, int os_errno) {
  Cluster cluster(3, 1, 100'000, 16);
  cluster.protect_all(1);
  cluster.lose(0);
  SimDisk& disk = cluster.disk(1);
  disk.fail_read_at(disk.read_count() + read, os_errno);
  const auto rebuilt = cluster.rebuilt();
  const std::string path = cluster.directory() + "/" + cluster.members()[0].files[0].name;
  const auto found = read_whole(*rebuilt.files, path, kStep);
  return found ? Status{} : std::unexpected(found.error());
}

// Older checkpoints may be taken for one that is lost, not for one that this process may not read.
TEST(Rebuild, ARefusedPieceIsNotALostOne) {
  std::size_t failures = 0;
  for (std::size_t read = 0; read < 20; ++read) {
    SCOPED_TRACE(fmt::format("read {}", read));
    const Status refused = rebuild_with_one_failure(read, EMFILE);
    const Status lost = rebuild_with_one_failure(read, EIO);
    ASSERT_EQ(refused.has_value(), lost.has_value());
    if (refused) continue;
    ++failures;
    EXPECT_TRUE(may_have_good_copy(refused.error())) << refused.error().message();
    EXPECT_FALSE(may_have_good_copy(lost.error())) << lost.error().message();
  }
  EXPECT_GE(failures, 4U);
}

TEST(Rebuild, AFailureOfTheCalculationIsAnError) {
  Cluster cluster(3, 1, 100'000, 41);
  cluster.protect_all(1);
  cluster.lose(0);
  const auto rebuilt = cluster.rebuilt();
  const std::string path = cluster.directory() + "/" + cluster.members()[0].files[0].name;
  ASSERT_TRUE(fail_points::arm("parity.pieces_read=error:EIO@2"));
  EXPECT_EQ(code_of(read_whole(*rebuilt.files, path, kStep)), ErrorCode::kIo);
  fail_points::disarm();
  EXPECT_TRUE(read_whole(*rebuilt.files, path, kStep));
}

// Refuses to open one file.
class Withheld final : public PassingVfs {
 public:
  Withheld(Vfs& disk, std::string path) : PassingVfs(disk), path_(std::move(path)) {}
  Result<std::unique_ptr<File>> open_read(std::string_view name, Access access) override {
    if (name == path_) return os_fail("open", name, EMFILE);
    return PassingVfs::open_read(name, access);
  }

 private:
  const std::string path_;
};

// Two pairs; of the second one both nodes are lost.
TEST(Rebuild, ARefusedParityFileOfAnotherGroupLeavesNothingOpen) {
  Cluster cluster(4, 1, 100'000, 40);
  for (std::size_t node = 0; node < 4; ++node) {
    ASSERT_TRUE(cluster.protect_in(node / 2 * 2, 2, node, 1));
  }
  cluster.lose(2);
  cluster.lose(3);
  Anywhere left({&cluster.disk(0), &cluster.disk(1)});
  const std::string lost = cluster.directory() + "/" + cluster.members()[3].files[0].name;
  const auto code_of_lost = [&](const std::string& withheld, std::vector<std::string> parity) {
    Withheld pieces(left, cluster.directory() + "/" + withheld);
    const auto files = open_rebuilt_files(pieces, cluster.manifest(), parity);
    const auto opened = files->open_read(lost, Access::kBuffered);
    return opened ? std::optional<Error>() : std::optional(opened.error());
  };
  const std::vector<std::string> both = {parity_file_name(0, 4), parity_file_name(1, 4)};
  const auto known = code_of_lost(both[0], both);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->code(), ErrorCode::kNotFound) << "node 1 says that node 0 is in its group";
  const auto unknown = code_of_lost(both[0], {both[0]});
  ASSERT_TRUE(unknown);
  EXPECT_TRUE(may_have_good_copy(*unknown)) << "it may be of any group";
}

TEST(Rebuild, ReadsOfAnySize) {
  Cluster cluster(4, 1, 200'000, 4);
  cluster.protect_all(1);
  cluster.lose(1);
  for (const std::size_t step : {1'000UL, 4'096UL, 65'536UL, 99'999UL, 10'000'000UL}) {
    expect_files_of(cluster, 1, step);
  }
}

// Ends of files in any strip, also of buffers that were used before.
TEST(Rebuild, LongFilesInManySteps) {
  for (const std::uint64_t seed : {20U, 21U, 22U, 23U}) {
    Cluster cluster(3, 1 + seed % 2, 2 * kStripBytes, seed);
    cluster.protect_all(1);
    const auto whole = cluster.copies();
    for (std::size_t lost = 0; lost < 3; ++lost) {
      cluster.lose(lost);
      SCOPED_TRACE(fmt::format("seed {}, node {}", seed, lost));
      expect_files_of(cluster, lost, 3'000'000);
      cluster.put_back(whole);
    }
  }
}

// It verifies by itself, and the manifest lists another one.
TEST(Rebuild, AFileOfAnotherSaveCountsAsLost) {
  Cluster cluster(4, 1, 100'000, 14);
  cluster.protect_all(2);
  const std::string path = cluster.directory() + "/" + cluster.members()[1].files[0].name;
  const std::string& old = cluster.files().at(path);
  const Identity identity{.run_id = cluster.manifest().run_id,
                          .attempt_id = cluster.manifest().point.attempt_id,
                          .generation = 1,
                          .step = 7,
                          .save_index = 3,
                          .part = {.rank = 1, .world_size = 4}};
  const std::string other =
      sealed_part(identity, random_text(cluster.random(), old.size() - kPageBytes));
  ASSERT_EQ(other.size(), old.size());
  cluster.disk(1).plant(path, other);
  cluster.lose(3);
  expect_files_of(cluster, 3);
  expect_files_of(cluster, 1);
}

TEST(Rebuild, ARecordThatIsWrongAboutAHeaderGivesNoBytes) {
  Cluster cluster(3, 1, 100'000, 15);
  const ManifestFile& file = cluster.members()[0].files[0];
  Member member{.node = 0,
                .files = {{.name = file.name,
                           .bytes = file.bytes,
                           .header_bytes = kPageBytes,
                           .header_crc = file.header_crc}}};
  std::vector<std::byte> into(kBlockBytes);
  EXPECT_TRUE(MemberStream(cluster.disk(0), cluster.directory(), member).read(0, into));
  member.files[0].header_bytes = 2 * kPageBytes;
  const MemberStream wrong(cluster.disk(0), cluster.directory(), member);
  EXPECT_EQ(code_of(wrong.read(0, into)), ErrorCode::kCorrupt);
}

// A file of the checkpoint that is there, with one bit changed.
struct Flip {
  std::size_t node;
  std::string path;
  std::uint64_t bit;
};

Flip random_flip(Cluster& cluster, std::size_t nodes) {
  const std::size_t node = cluster.random()() % nodes;
  std::vector<std::string> paths = {cluster.parity_path(node)};
  for (const auto& file : cluster.members()[node].files) {
    paths.push_back(cluster.directory() + "/" + file.name);
  }
  const std::string& path = paths[cluster.random()() % paths.size()];
  const std::uint64_t bits = 8 * cluster.disk(node).contents(path).value().size();
  return {node, path, cluster.random()() % bits};
}

TEST(Rebuild, AFlipCountsAsOneMoreLoss) {
  constexpr std::size_t kNodes = 5;
  Cluster cluster(kNodes, 1, 130'000, 7);
  cluster.protect_all(2);
  const auto whole = cluster.copies();
  const std::size_t rounds = kSanitized ? 100 : 1'000;
  for (std::size_t round = 0; round < rounds; ++round) {
    Flip flip = random_flip(cluster, kNodes);
    ASSERT_TRUE(cluster.disk(flip.node).flip_bit(flip.path, flip.bit));
    const std::size_t lost = (flip.node + 1 + cluster.random()() % (kNodes - 1)) % kNodes;
    cluster.lose(lost);
    SCOPED_TRACE(
        fmt::format("bit {} of {} on node {}, node {} lost", flip.bit, flip.path, flip.node, lost));
    expect_files_of(cluster, lost);
    expect_files_of(cluster, flip.node);
    if (testing::Test::HasFatalFailure()) return;
    cluster.put_back(whole);
  }
}

// The files that can't be calculated; of all others every byte is right.
std::size_t count_refused(Cluster& cluster) {
  const auto rebuilt = cluster.rebuilt();
  std::size_t refused = 0;
  for (const auto& [path, bytes] : cluster.files()) {
    const auto found = read_whole(*rebuilt.files, path, kStep);
    EXPECT_TRUE(!found || *found == bytes) << path;
    refused += found ? 0 : 1;
  }
  return refused;
}

TEST(Rebuild, TwoFlipsWithoutAWordOfMoreAreNeverWrongBytes) {
  constexpr std::size_t kNodes = 4;
  Cluster cluster(kNodes, 1, 100'000, 8);
  cluster.protect_all(1);
  const auto whole = cluster.copies();
  std::size_t refused = 0;
  for (std::size_t round = 0; round < 200; ++round) {
    for (int i = 0; i < 2; ++i) {
      const Flip flip = random_flip(cluster, kNodes);
      ASSERT_TRUE(cluster.disk(flip.node).flip_bit(flip.path, flip.bit));
    }
    cluster.lose(cluster.random()() % kNodes);
    refused += count_refused(cluster);
    if (testing::Test::HasFatalFailure()) return;
    cluster.put_back(whole);
  }
  EXPECT_GT(refused, 0U);
}

TEST(Rebuild, ADamagedFileThatIsThereIsCalculatedToo) {
  Cluster cluster(4, 2, 100'000, 9);
  cluster.protect_all(1);
  const std::string path = cluster.directory() + "/" + cluster.members()[2].files[1].name;
  cluster.disk(2).plant(path, "nothing of it is left");
  expect_files_of(cluster, 2);
}

TEST(Rebuild, ParityOfAnotherCheckpointCountsAsLost) {
  Cluster cluster(4, 1, 100'000, 10);
  cluster.protect_all(2);
  Cluster other(4, 1, 100'000, 11);
  other.protect_all(2);
  // Of the same attempt by name, with other files.
  cluster.disk(1).plant(cluster.parity_path(1), *other.disk(1).contents(other.parity_path(1)));
  cluster.lose(3);
  expect_files_of(cluster, 3);
}

TEST(Rebuild, OtherNamesAreNotFound) {
  Cluster cluster(3, 1, 10'000, 12);
  cluster.protect_all(1);
  const auto rebuilt = cluster.rebuilt();
  const auto opened =
      rebuilt.files->open_read(cluster.directory() + "/manifest.json", Access::kBuffered);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(rebuilt.files->remove_file(cluster.files().begin()->first)),
            ErrorCode::kUnsupported);
  EXPECT_EQ(rebuilt.files->list(cluster.directory()).value().size(), 3U);
  EXPECT_EQ(rebuilt.files->list("").value().size(), 0U);
}

TEST(Rebuild, BehindTheEndThereIsNothing) {
  Cluster cluster(3, 1, 10'000, 13);
  cluster.protect_all(1);
  const auto rebuilt = cluster.rebuilt();
  const auto& [path, bytes] = *cluster.files().begin();
  const auto file = rebuilt.files->open_read(path, Access::kBuffered).value();
  std::vector<std::byte> into(10);
  EXPECT_EQ(file->read_at(bytes.size(), into).value(), 0U);
  EXPECT_EQ(file->read_at(bytes.size() + 100, into).value(), 0U);
  EXPECT_EQ(file->read_at(bytes.size() - 3, into).value(), 3U);
}

}  // namespace
}  // namespace deepfreeze
