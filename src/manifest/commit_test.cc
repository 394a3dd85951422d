#include "manifest/commit.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/fail_point.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/sealed_parts.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};

class Commit : public testing::Test {
 protected:
  Commit() : run_id_(create_or_open_run(disk_, {})->run_id) {
    EXPECT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
  }
  ~Commit() override { fail_points::disarm(); }

  Identity identity(std::uint64_t step, PartName part = {}) const {
    return make_identity(run_id_, {1, step, step, step}, part);
  }
  AttemptState state(std::size_t index = 0) { return read_run(disk_)->attempts.at(index); }
  template <class T>
  void expect_code(const Result<T>& result, ErrorCode code) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), code) << result.error().message();
  }

  SimDisk disk_;
  std::string run_id_;
};

TEST_F(Commit, PublishesWhatTheFilesSay) {
  const auto manifest = save_attempt(disk_, identity(3));
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message();
  EXPECT_EQ(manifest->outcome, Outcome::kCommitted);
  EXPECT_EQ(manifest->point, (Point{1, 3, 3, 3}));
  EXPECT_EQ(manifest->annotations.metrics.at("loss"), 0.25);
  ASSERT_EQ(manifest->files.size(), 1U);
  EXPECT_EQ(manifest->files[0].name, "rank-00000-of-00001-0-of-1.safetensors");
  EXPECT_TRUE(verify_attempt(disk_, *manifest).has_value());
  EXPECT_EQ(state().manifest, *manifest);
  EXPECT_EQ(disk_.pending_count(), 0U);
}

TEST_F(Commit, AnAttemptNameIsNeverUsedTwice) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  EXPECT_EQ(begin_attempt(disk_, {3, 3}).error().code(), ErrorCode::kExists);
}

TEST_F(Commit, AnAttemptWhoseDirectoryIsNotDurableHasNotBegun) {
  disk_.fail_at(disk_.operation_count() + 1, EIO);
  const Status begun = begin_attempt(disk_, {3, 3});
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(begin_attempt(disk_, {3, 3}).has_value());  // nothing is in the way
}

TEST_F(Commit, WaitsForTheOtherRanks) {
  const Identity first = identity(3, {0, 2, 0, 1});
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, first).has_value());
  std::jthread other(
      [&] { EXPECT_TRUE(write_and_seal(disk_, identity(3, {1, 2, 0, 1})).has_value()); });
  CommitRequest request = make_request(first);
  request.deadline = kLong;
  const auto manifest = commit_attempt(disk_, request);
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message();
  ASSERT_EQ(manifest->files.size(), 2U);
  EXPECT_EQ(manifest->files[1].name, "rank-00001-of-00002-0-of-1.safetensors");
}

TEST_F(Commit, AMissingRankEndsAtTheDeadlineAndAborts) {
  const Identity first = identity(3, {0, 2, 0, 1});
  const auto manifest = save_attempt(disk_, first);
  expect_code(manifest, ErrorCode::kIncomplete);
  EXPECT_TRUE(manifest.error().message().starts_with("commit step 3: "));
  EXPECT_NE(manifest.error().message().find("rank-00001-of-00002"), std::string::npos);
  EXPECT_EQ(state().manifest->outcome, Outcome::kAborted);
}

TEST_F(Commit, AMissingFileOfARankIsMissed) {
  expect_code(save_attempt(disk_, identity(3, {0, 1, 0, 2})), ErrorCode::kIncomplete);
}

TEST_F(Commit, AnOutcomeThatIsThereEndsTheWaitAtOnce) {
  const Identity first = identity(3, {0, 2, 0, 1});
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  Manifest aborted{.outcome = Outcome::kAborted, .run_id = first.run_id, .world_size = 2};
  aborted.point = {
      .generation = first.generation, .step = 3, .save_index = first.save_index, .attempt_id = 3};
  ASSERT_TRUE(abort_attempt(disk_, aborted).has_value());
  CommitRequest request = make_request(first);
  request.deadline = std::chrono::hours(24);  // the test would never end
  expect_code(commit_attempt(disk_, request), ErrorCode::kCancelled);
}

TEST_F(Commit, AFailedRankEndsTheWaitAtOnce) {
  const Identity first = identity(3, {0, 2, 0, 1});
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, first).has_value());
  report_failed_part(disk_, {3, 3}, {1, 2, 0, 1}, Error(ErrorCode::kNoSpace, "disk of rank 1"));
  CommitRequest request = make_request(first);
  request.deadline = std::chrono::hours(24);  // the test would never end
  const auto manifest = commit_attempt(disk_, request);
  expect_code(manifest, ErrorCode::kIncomplete);
  EXPECT_NE(manifest.error().message().find("disk of rank 1"), std::string::npos);
}

const std::string kSealedPath = attempt_dir_name({3, 3}) + "/" + sealed_file_name({});

// Commits the attempt {3, 3} as the process that has sealed it.
CommitRequest own_request(SimDisk& disk, const Identity& identity) {
  const auto part = read_part_header(disk, kSealedPath);
  EXPECT_TRUE(part.has_value());
  CommitRequest request = make_request(identity);
  request.own = {OwnPart{.file_bytes = part->file_bytes,
                         .header_bytes = part->file_bytes - part->header.data_bytes,
                         .header_crc = part->crc,
                         .annotations = part->header.annotations}};
  return request;
}

TEST_F(Commit, PublishesTheSameOfAPartOfItsOwn) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  const auto copy = disk_.clone();
  const auto manifest = commit_attempt(disk_, own_request(disk_, identity(3)));
  ASSERT_TRUE(manifest.has_value()) << manifest.error().message();
  EXPECT_TRUE(verify_attempt(disk_, *manifest).has_value());
  EXPECT_EQ(*commit_attempt(*copy, make_request(identity(3))), *manifest);
}

TEST_F(Commit, RefusesAPartOfItsOwnThatIsNotWhatItWrote) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  CommitRequest other = own_request(disk_, identity(3));
  other.own.front().header_crc ^= 1;
  expect_code(commit_attempt(*disk_.clone(), other), ErrorCode::kCorrupt);
  other = own_request(disk_, identity(3));
  other.own.front().file_bytes += 1;
  expect_code(commit_attempt(*disk_.clone(), other), ErrorCode::kCorrupt);
}

TEST_F(Commit, AHeaderOfItsOwnLargerThanAllMemoryIsAnError) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  CommitRequest request = own_request(disk_, identity(3));
  request.own.front().header_bytes = 1ULL << 60;
  expect_code(commit_attempt(disk_, request), ErrorCode::kNoSpace);
}

TEST_F(Commit, AHeaderOfItsOwnThatFailsItsChecksumIsNotCompared) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  const CommitRequest request = own_request(disk_, identity(3));
  ASSERT_TRUE(disk_.flip_bit(kSealedPath, 8 * 200));
  const auto manifest = commit_attempt(disk_, request);
  expect_code(manifest, ErrorCode::kCorrupt);
  EXPECT_TRUE(manifest.error().message().contains("its checksum does not match"))
      << manifest.error().message();
}

TEST_F(Commit, APartThatEndsInItsFirstBytesSaysWhere) {
  disk_.plant(kSealedPath, "abc");
  const auto part = read_part_header(disk_, kSealedPath);
  expect_code(part, ErrorCode::kCorrupt);
  EXPECT_TRUE(part.error().message().contains("it ends after 3 bytes")) << part.error().message();
}

TEST_F(Commit, ComparesEachOfSeveralFilesOfItsOwn) {
  const Identity first = identity(3, {0, 1, 0, 2});
  Identity second = first;
  second.part.file = 1;
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  CommitRequest request = make_request(first);
  for (const Identity& identity : {first, second}) {
    ASSERT_TRUE(write_and_seal(disk_, identity).has_value());
    const auto part = read_part_header(
        disk_, join_name(attempt_dir_name({3, 3}), sealed_file_name(identity.part)));
    ASSERT_TRUE(part.has_value());
    request.own.push_back({.file_bytes = part->file_bytes,
                           .header_bytes = part->file_bytes - part->header.data_bytes,
                           .header_crc = part->crc,
                           .annotations = part->header.annotations});
  }
  for (std::size_t file = 0; file < 2; ++file) {
    CommitRequest other = request;
    other.own[file].header_crc ^= 1;
    expect_code(commit_attempt(*disk_.clone(), other), ErrorCode::kCorrupt);
  }
  const auto by_others = commit_attempt(*disk_.clone(), make_request(first));
  const auto manifest = commit_attempt(disk_, request);
  ASSERT_TRUE(manifest.has_value() && by_others.has_value()) << manifest.error().message();
  EXPECT_EQ(*manifest, *by_others);
  EXPECT_EQ(manifest->files.size(), 2U);
}

// A part of floats, of which two are not finite.
Status write_counted_part(Vfs& vfs, const std::string& path, const ShardHeader& header,
                          std::span<const std::byte> data) {
  ShardHeader counted = header;
  TensorSpec& spec = counted.entries[0].spec;
  spec.dtype = DType::kF32;
  spec.shape = {data.size() / sizeof(float)};
  counted.ranges = {{.min = 1, .max = 2, .finite = spec.shape[0] - 2, .non_finite = 2}};
  return write_part(vfs, path, counted, data);
}

TEST_F(Commit, SumsUpWhatIsNotFiniteWhereAllPartsHaveCounted) {
  const Identity first = identity(3, {0, 2, 0, 1});
  Identity second = first;
  second.part.rank = 1;
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, first, write_counted_part).has_value());
  const auto half = disk_.clone();
  ASSERT_TRUE(write_and_seal(*half, second).has_value());
  EXPECT_EQ(commit_attempt(*half, make_request(first))->non_finite, std::nullopt);
  ASSERT_TRUE(write_and_seal(disk_, second, write_counted_part).has_value());
  EXPECT_EQ(commit_attempt(disk_, make_request(first))->non_finite, 4U);
}

// Rank 2 has other bytes than the others.
Status write_audited_part(Vfs& vfs, const std::string& path, const ShardHeader& header,
                          std::span<const std::byte> data) {
  ShardHeader audited = header;
  audited.audit = {{"shared", {}, 0, 8, header.identity.part.rank == 2 ? 9U : 4U}};
  return write_part(vfs, path, audited, data);
}

TEST_F(Commit, TellsWhichRanksHaveOtherBytesThanMost) {
  Identity identity_of_rank = identity(3, {0, 3, 0, 1});
  const Identity first = identity_of_rank;
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    identity_of_rank.part.rank = rank;
    ASSERT_TRUE(write_and_seal(disk_, identity_of_rank, write_audited_part).has_value());
  }
  const auto committed = commit_attempt(disk_, make_request(first));
  ASSERT_TRUE(committed) << committed.error().message();
  EXPECT_EQ(committed->diverged, (std::vector<Divergence>{{"shared", {2}}}));
}

TEST_F(Commit, TakesTheCountOfItsOwnPartsAsItWasGiven) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3), write_counted_part).has_value());
  CommitRequest request = own_request(disk_, identity(3));
  EXPECT_EQ(commit_attempt(*disk_.clone(), request)->non_finite, std::nullopt);
  request.own.front().non_finite = 2;
  EXPECT_EQ(commit_attempt(disk_, request)->non_finite, 2U);
}

TEST_F(Commit, EveryFlippedBitOfAHeaderIsFound) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  const CommitRequest own = own_request(disk_, identity(3));
  const std::string path = kSealedPath;
  const std::size_t header_bytes = disk_.contents(path)->size() - kTestDataBytes;
  for (std::size_t byte = 0; byte < header_bytes; byte += 7) {
    const auto copy = disk_.clone();
    ASSERT_TRUE(copy->flip_bit(path, byte * 8 + byte % 8));
    for (const CommitRequest& request : {make_request(identity(3)), own}) {
      const auto disk = copy->clone();
      EXPECT_FALSE(commit_attempt(*disk, request).has_value()) << byte;
      EXPECT_EQ(read_run(*disk)->attempts.at(0).manifest->outcome, Outcome::kAborted);
    }
  }
}

TEST_F(Commit, AFileOfTheWrongSizeIsFound) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  const std::string path = attempt_dir_name({3, 3}) + "/" + sealed_file_name({});
  disk_.plant(path, *disk_.contents(path) + "x");
  expect_code(commit_attempt(disk_, make_request(identity(3))), ErrorCode::kCorrupt);
}

TEST_F(Commit, AFileOfAnotherAttemptIsRefused) {
  const std::vector<Identity> foreign = {make_identity("0123456789abcdef", {1, 3, 3, 3}),
                                         make_identity(run_id_, {1, 3, 3, 4}),
                                         make_identity(run_id_, {2, 3, 3, 3}),
                                         make_identity(run_id_, {1, 4, 3, 3}),
                                         make_identity(run_id_, {1, 3, 4, 3}),
                                         identity(3, {0, 1, 0, 2})};
  for (const Identity& other : foreign) {
    const Identity wanted = identity(3);
    const std::string directory = attempt_dir_name(name_of(wanted));
    const auto copy = disk_.clone();
    ASSERT_TRUE(begin_attempt(*copy, name_of(wanted)).has_value());
    const auto data = make_data(other, kTestDataBytes);
    const std::string path = directory + "/" + part_file_name({});
    ASSERT_TRUE(write_part(*copy, path, make_header(other, data), data).has_value());
    ASSERT_TRUE(seal_parts(*copy, name_of(wanted), std::array{PartName{}}).has_value());
    expect_code(commit_attempt(*copy, make_request(wanted)), ErrorCode::kMismatch);
  }
}

// Two ranks that store `first` and `second`.
Result<Manifest> commit_two(SimDisk& disk, const Identity& identity, const TensorSpec& first,
                            const TensorSpec& second) {
  DF_TRY_VOID(begin_attempt(disk, name_of(identity)));
  const TensorSpec* specs[] = {&first, &second};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Identity own = identity;
    own.part = {rank, 2, 0, 1};
    const auto data = make_data(own, 4);
    ShardHeader header = make_header(own, data);
    header.entries[0].spec = *specs[rank];
    const std::string directory = attempt_dir_name(name_of(identity));
    DF_TRY_VOID(write_part(disk, directory + "/" + part_file_name(own.part), header, data));
    DF_TRY_VOID(seal_parts(disk, name_of(identity), std::span(&own.part, 1)));
  }
  CommitRequest request = make_request(identity);
  request.world_size = 2;
  return commit_attempt(disk, request);
}

TensorSpec box_at(std::uint64_t offset) {
  TensorSpec spec;
  spec.key = "w";
  spec.shape = {4};
  spec.box = Box{.offset = {offset}, .extent = {4}};
  spec.global_shape = {8};
  return spec;
}

TEST_F(Commit, AKeyMayBeStoredTwiceOnlyAsTheBoxesOfOneTensor) {
  TensorSpec whole = box_at(0);
  whole.box.reset();
  whole.global_shape.clear();
  const auto commit = [&](std::uint64_t step, const TensorSpec& a, const TensorSpec& b) {
    return commit_two(disk_, identity(step, {0, 2, 0, 1}), a, b);
  };
  const auto good = commit(1, box_at(0), box_at(4));
  EXPECT_TRUE(good.has_value()) << good.error().message();
  const auto doubled = commit(2, box_at(0), box_at(3));
  expect_code(doubled, ErrorCode::kMismatch);
  EXPECT_TRUE(doubled.error().message().contains("step-000000000002")) << doubled.error().message();
  expect_code(commit(3, whole, whole), ErrorCode::kMismatch);
  expect_code(commit(4, whole, box_at(4)), ErrorCode::kMismatch);
  TensorSpec other = box_at(4);
  other.global_shape = {16};
  expect_code(commit(5, box_at(0), other), ErrorCode::kMismatch);
  TensorSpec elsewhere = box_at(4);
  elsewhere.key = "v";
  expect_code(commit(6, box_at(0), elsewhere), ErrorCode::kMismatch);  // half of each is missing
}

TEST_F(Commit, APartOfAnotherWorldIsRefused) {
  CommitRequest request = make_request(identity(3));
  request.world_size = 2;
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  expect_code(commit_attempt(disk_, request), ErrorCode::kMismatch);
}

TEST_F(Commit, ANewerClaimFencesTheCommit) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  ASSERT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
  expect_code(commit_attempt(disk_, make_request(identity(3))), ErrorCode::kFenced);
  EXPECT_FALSE(state().committed());
}

TEST_F(Commit, AnAbortedAttemptCantBeCommittedAnyMore) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  Manifest aborted;
  aborted.outcome = Outcome::kAborted;
  aborted.run_id = run_id_;
  aborted.point = {1, 3, 3, 3};
  ASSERT_TRUE(abort_attempt(disk_, aborted).has_value());
  expect_code(commit_attempt(disk_, make_request(identity(3))), ErrorCode::kCancelled);
  EXPECT_EQ(state().manifest->outcome, Outcome::kAborted);
  ASSERT_TRUE(claim_generation(disk_, run_id_, {}).has_value());
  expect_code(commit_attempt(disk_, make_request(identity(3))), ErrorCode::kFenced);
}

TEST_F(Commit, ACommittedAttemptCantBeAbortedAndIsAdoptedWhenCommittedAgain) {
  const auto manifest = save_attempt(disk_, identity(3));
  ASSERT_TRUE(manifest.has_value());
  Manifest aborted = *manifest;
  aborted.outcome = Outcome::kAborted;
  aborted.files.clear();
  EXPECT_EQ(abort_attempt(disk_, aborted), *manifest);
  EXPECT_EQ(commit_attempt(disk_, make_request(identity(3))), *manifest);
  EXPECT_EQ(state().manifest, *manifest);
}

TEST_F(Commit, AFailedManifestAbortsAndTheNextSaveWorks) {
  ASSERT_TRUE(fail_points::arm("commit.manifest_written=error:EIO").has_value());
  expect_code(save_attempt(disk_, identity(3)), ErrorCode::kIo);
  fail_points::disarm();
  EXPECT_EQ(state().manifest->outcome, Outcome::kAborted);
  EXPECT_TRUE(save_attempt(disk_, identity(4)).has_value());
}

TEST_F(Commit, AfterTheRenameTheOutcomeIsUnknownAndNothingIsAborted) {
  ASSERT_TRUE(fail_points::arm("commit.manifest_renamed=error:ENOSPC").has_value());
  const auto manifest = save_attempt(disk_, identity(3));
  expect_code(manifest, ErrorCode::kIo);
  EXPECT_NE(manifest.error().message().find("outcome unknown"), std::string::npos);
  EXPECT_TRUE(state().committed());
}

TEST_F(Commit, OnAFullDiskTheAttemptGivesItsSpaceBack) {
  ASSERT_TRUE(begin_attempt(disk_, {3, 3}).has_value());
  ASSERT_TRUE(write_and_seal(disk_, identity(3)).has_value());
  disk_.set_bytes_free(0);
  expect_code(commit_attempt(disk_, make_request(identity(3))), ErrorCode::kNoSpace);
  EXPECT_TRUE(read_run(disk_)->attempts.empty());
}

TEST_F(Commit, PassesAFailPointBehindEveryDurableStep) {
  fail_points::start_recording();
  ASSERT_TRUE(save_attempt(disk_, identity(3)).has_value());
  const std::vector<std::string> expected = {"commit.directory_made",   "commit.directory_synced",
                                             "commit.sealed",           "commit.seal_synced",
                                             "commit.parts_checked",    "commit.manifest_written",
                                             "commit.manifest_renamed", "commit.manifest_synced"};
  EXPECT_EQ(fail_points::recorded(), expected);
}

// Another process gives the attempt up and deletes it, all but the directory, which is not empty by
// then, while this one is held up before it writes its record.
class DeletedMeanwhile : public PassingVfs {
 public:
  DeletedMeanwhile(Vfs& disk, Manifest aborted, bool claims)
      : PassingVfs(disk), aborted_(std::move(aborted)), claims_(claims) {}

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    if (name.find("manifest.") == std::string_view::npos || std::exchange(is_over_, true)) {
      return disk_.create(name, access);
    }
    if (claims_) {
      EXPECT_TRUE(claim_generation(disk_, aborted_.run_id, {}));
    }
    EXPECT_TRUE(abort_attempt(disk_, aborted_));
    const std::string directory =
        attempt_dir_name({aborted_.point.step, aborted_.point.attempt_id});
    const auto listed = disk_.list(directory);
    auto created = disk_.create(name, access);
    for (const DirEntry& entry : *listed) {
      if (entry.name != kManifestFile)
        std::ignore = disk_.remove_file(join_name(directory, entry.name));
    }
    EXPECT_TRUE(disk_.sync_dir(directory));
    EXPECT_TRUE(disk_.remove_file(join_name(directory, kManifestFile)));
    EXPECT_FALSE(disk_.remove_dir(directory));
    return created;
  }

 private:
  const Manifest aborted_;
  const bool claims_;
  bool is_over_ = false;
};

class CommitOfWhatWasDeleted : public Commit, public testing::WithParamInterface<bool> {};

TEST_P(CommitOfWhatWasDeleted, IsNoneAndLeavesNoRecord) {
  Manifest aborted;
  aborted.outcome = Outcome::kAborted;
  aborted.run_id = run_id_;
  aborted.point = {1, 3, 3, 3};
  DeletedMeanwhile held_up(disk_, aborted, GetParam());
  const auto saved = save_attempt(held_up, identity(3));
  expect_code(saved, GetParam() ? ErrorCode::kFenced : ErrorCode::kCancelled);
  for (const AttemptState& attempt : read_run(disk_)->attempts) EXPECT_FALSE(attempt.committed());
}

INSTANTIATE_TEST_SUITE_P(Claims, CommitOfWhatWasDeleted, testing::Bool());

}  // namespace
}  // namespace deepfreeze
