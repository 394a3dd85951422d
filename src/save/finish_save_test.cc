// A trainer is left behind at every step of its save, and another process finishes it.
#include "save/finish_save.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/log.h"
#include "format/sealed_json.h"
#include "manifest/claims.h"
#include "manifest/run_file.h"
#include "save/left_trainer.h"
#include "support/sim_disk.h"

namespace deepfreeze {
namespace {

class FinishSaveTest : public testing::Test {
 protected:
  FinishSaveTest() {
    set_log_sink([](std::string_view) {});
  }
  ~FinishSaveTest() override { set_log_sink({}); }

  // A run with one claim, as every trainer's.
  void begin_run(SimDisk& disk) {
    run_id_ = create_or_open_run(disk, std::nullopt)->run_id;
    generation_ = claim_generation(disk, run_id_, std::nullopt)->generation;
  }
  LeftTrainer trainer(SimDisk& disk, Kind kind = {}, std::chrono::milliseconds commit_wait = {}) {
    return {disk, run_id_, generation_, kind, commit_wait};
  }

  void expect_committed(SimDisk& disk, const LeftTrainer& trainer) {
    const auto listing = read_run(disk);
    ASSERT_TRUE(listing);
    ASSERT_EQ(listing->attempts.size(), 1U);
    const AttemptState& attempt = listing->attempts.front();
    ASSERT_TRUE(attempt.committed());
    EXPECT_TRUE(verify_attempt(disk, *attempt.manifest));
    EXPECT_EQ(attempt.manifest->annotations.metrics.at("loss"), 0.25);
    for (std::size_t file = 0; file < trainer.file_count(); ++file) {
      EXPECT_EQ(disk.contents(trainer.path_of(file)), trainer.whole_file(file)) << file;
    }
    for (const std::string& name : disk.list_all()) {
      EXPECT_FALSE(name.ends_with(".part")) << name;
    }
  }

  // Without a fault; on a copy of the disk.
  [[nodiscard]] std::size_t operations_of(LeftTrainer& gone, const SimDisk& disk) {
    const auto copy = disk.clone();
    EXPECT_TRUE(gone.finish_on(*copy));
    return copy->operation_count();
  }

  static void expect_whole_or_nothing(SimDisk& disk, bool must_be_there, bool may_be_there) {
    const auto listing = read_run(disk);
    ASSERT_TRUE(listing);
    bool is_there = false;
    for (const AttemptState& attempt : listing->attempts) {
      EXPECT_FALSE(attempt.fault);
      if (!attempt.committed()) continue;
      is_there = true;
      EXPECT_TRUE(verify_attempt(disk, *attempt.manifest));
    }
    EXPECT_TRUE(is_there || !must_be_there);
    EXPECT_TRUE(may_be_there || !is_there);
  }

  std::string run_id_;
  std::uint64_t generation_ = 0;
};

constexpr auto kEnds = std::to_array<End>({End::kPlanned, End::kPlannedAndBegun, End::kCaptured,
                                           End::kBegun, End::kHalfWritten, End::kWritten,
                                           End::kOneSealed, End::kSealed, End::kCommitted});

bool is_captured(End end) { return end >= End::kCaptured; }

TEST_F(FinishSaveTest, WhatIsCapturedIsCommittedAndNothingElse) {
  for (const Kind kind :
       {Kind{}, Kind{.several_files = true}, Kind{.ranges = true}, Kind{.cold = true},
        Kind{.ranges = true, .cold = true}, Kind{.several_files = true, .ranges = true}}) {
    for (const End end : kEnds) {
      SCOPED_TRACE(fmt::format("end {}, several files {}, ranges {}", static_cast<int>(end),
                               kind.several_files, kind.ranges));
      SimDisk disk;
      begin_run(disk);
      LeftTrainer gone = trainer(disk, kind);
      ASSERT_EQ(gone.file_count(), kind.several_files || kind.cold ? 2U : 1U);
      gone.go_to(end);
      const auto outcome = gone.finish();
      ASSERT_TRUE(outcome) << outcome.error().message();
      EXPECT_EQ(*outcome, is_captured(end) ? LeftOutcome::kCommitted : LeftOutcome::kDropped);
      if (is_captured(end)) {
        expect_committed(disk, gone);
      } else {
        EXPECT_TRUE(read_run(disk)->attempts.empty());
      }
      EXPECT_EQ(gone.finish().has_value(), true);  // and nothing is done twice
    }
  }
}

// It may be the next save's by then, or be given back.
TEST_F(FinishSaveTest, OnceAFileIsSealedTheMemoryIsNotNeeded) {
  for (const End end : {End::kOneSealed, End::kSealed, End::kCommitted}) {
    SimDisk disk;
    begin_run(disk);
    LeftTrainer gone = trainer(disk, {.several_files = true});
    gone.go_to(end);
    const auto outcome = finish_in_order(disk, gone.left(), {});
    ASSERT_TRUE(outcome) << outcome.error().message();
    EXPECT_EQ(*outcome, LeftOutcome::kCommitted);
    expect_committed(disk, gone);
  }
}

TEST_F(FinishSaveTest, NothingWasLeftOnceTheSaveIsOver) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  EXPECT_EQ(*gone.finish(), LeftOutcome::kNothing);  // before its first save
  gone.go_to(End::kCaptured);
  gone.handover().over();
  EXPECT_EQ(*gone.finish(), LeftOutcome::kNothing);
  EXPECT_TRUE(read_run(disk)->attempts.empty());
}

TEST_F(FinishSaveTest, MemoryThatWasHitAfterItsCaptureIsNotCommitted) {
  for (const std::uint64_t at : {std::uint64_t{0}, kBlockBytes, 8 * kLeftFloats - 1}) {
    SimDisk disk;
    begin_run(disk);
    LeftTrainer gone = trainer(disk);
    gone.go_to(End::kCaptured);
    gone.arena()[at] ^= std::byte{1};
    const auto outcome = gone.finish();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(outcome.error().message().find(fmt::format("block {}", at / kBlockBytes)),
              std::string::npos)
        << outcome.error().message();
    EXPECT_TRUE(read_run(disk)->attempts.empty());
  }
}

TEST_F(FinishSaveTest, CopiesForAnAuditAreComparedToo) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk, {.audit = true});
  gone.go_to(End::kCaptured);
  gone.arena()[gone.plan().audit_sections.front().begin] ^= std::byte{1};
  const auto outcome = gone.finish();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::kCorrupt) << outcome.error().message();
}

// No rank comes, and somebody waits for the run.
TEST_F(FinishSaveTest, OtherRanksAreWaitedForAsLongAsTheyComeOn) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk, {.audit = true}, std::chrono::hours(1));
  gone.go_to(End::kCaptured);
  int looks = 0;
  const Others others = {.wait =
                             [&] {
                               if (++looks <= 3)
                                 disk.plant(gone.path_of(0) + std::to_string(looks), "x");
                               return true;
                             },
                         .quiet_max = std::chrono::milliseconds(20)};
  const auto outcome = finish_in_order(disk, gone.left(), gone.arena(), others);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::kIncomplete) << outcome.error().message();
  EXPECT_GT(looks, 3);
}

TEST_F(FinishSaveTest, ARunThatWasTakenOverIsLeftAlone) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kCaptured);
  ASSERT_TRUE(claim_generation(disk, run_id_, std::nullopt));
  const std::size_t before = disk.operation_count();
  const auto outcome = gone.finish();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::kFenced);
  EXPECT_EQ(disk.operation_count(), before);  // nothing was written
}

TEST_F(FinishSaveTest, AnAttemptThatWasGivenUpStaysSo) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kWritten);
  give_attempt_up(disk, gone.plan().identity);
  EXPECT_EQ(*gone.finish(), LeftOutcome::kDropped);
  EXPECT_FALSE(read_run(disk)->attempts.front().committed());
}

TEST_F(FinishSaveTest, ARankSealsAndRankZeroCommitsOnceAllHave) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer first = trainer(disk, {.ranges = true, .audit = true});
  ASSERT_FALSE(first.plan().audit.empty());
  first.go_to(End::kCaptured);
  const auto alone = first.finish();  // the other one's part does not come
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code(), ErrorCode::kIncomplete) << alone.error().message();
  EXPECT_EQ(disk.contents(first.path_of(0)), first.whole_file(0));
  EXPECT_FALSE(read_run(disk)->attempts.front().committed());
}

TEST_F(FinishSaveTest, AnotherRankDoesNotCommit) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kCaptured);
  LeftSave left = gone.left();
  left.files.front().header.identity.part = {.rank = 1, .world_size = 2};
  const auto sealed = finish_in_order(disk, left, gone.arena());
  ASSERT_TRUE(sealed) << sealed.error().message();
  EXPECT_EQ(*sealed, LeftOutcome::kSealed);
  EXPECT_TRUE(read_run(disk)->attempts.front().undecided());
  const std::string path = attempt_dir_name(name_of(gone.plan().identity)) + "/" +
                           sealed_file_name({.rank = 1, .world_size = 2});
  EXPECT_TRUE(verify_part(disk, path));
  // One that was not captured tells the others.
  left.state = HandoverState::kPlanned;
  left.files.front().header.identity.attempt_id = 7;
  EXPECT_EQ(*finish_in_order(disk, left, {}), LeftOutcome::kDropped);
  EXPECT_TRUE(reported_failure(disk, {5, 7}));
}

// Of the memory that describes the save, too, not all can be relied on.
// Other nodes' parts lie in other directories: nothing is decided by this one alone.
TEST_F(FinishSaveTest, OfANodeItIsSealedAndItsLeaderCommits) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk, {.audit = true});
  gone.go_to(End::kCaptured);
  const auto alone = finish_in_order(disk, gone.left(), gone.arena(), {.is_on_nodes = true});
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_EQ(*alone, LeftOutcome::kSealed);
  EXPECT_TRUE(disk.contents(gone.path_of(0)));
  EXPECT_FALSE(read_manifest(disk, name_of(gone.plan().identity), run_id_));
  std::vector<std::optional<Error>> told;
  const Others nodes{.is_on_nodes = true,
                     .commit_node = [&](const Identity& identity, std::optional<Error> failure) {
                       EXPECT_EQ(identity.attempt_id, gone.plan().identity.attempt_id);
                       told.push_back(std::move(failure));
                       return Result<Manifest>();
                     }};
  const auto led = finish_in_order(disk, gone.left(), gone.arena(), nodes);
  ASSERT_TRUE(led);
  EXPECT_EQ(*led, LeftOutcome::kCommitted);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told.front());
}

TEST_F(FinishSaveTest, OtherNodesHearOfAPartThatWillNotCome) {
  for (const bool is_captured : {false, true}) {
    SimDisk disk;
    begin_run(disk);
    LeftTrainer gone = trainer(disk, {.audit = true});
    gone.go_to(is_captured ? End::kCaptured : End::kPlanned);
    gone.arena().front() ^= std::byte{1};
    std::optional<Error> told;
    const Others nodes{.is_on_nodes = true,
                       .commit_node = [&](const Identity&, std::optional<Error> failure) {
                         told = std::move(failure);
                         return Result<Manifest>(fail(ErrorCode::kCancelled, "given up"));
                       }};
    const auto finished = finish_in_order(disk, gone.left(), gone.arena(), nodes);
    EXPECT_EQ(finished.has_value(), !is_captured);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->code(), is_captured ? ErrorCode::kCorrupt : ErrorCode::kCancelled);
  }
}

TEST_F(FinishSaveTest, ADescriptionThatMakesNoSenseIsRefused) {
  const auto changes = std::to_array<void (*)(LeftSave&)>({
      [](LeftSave& left) {
        left.block_crcs.pop_back();
        left.block_crcs.pop_back();
      },
      [](LeftSave& left) { left.files.front().section.begin += 1; },
      [](LeftSave& left) { left.files.front().section.end += 1; },
      // Up to the end of a whole block: all checksums fit.
      [](LeftSave& left) { left.files.front().section.end = 6 * kBlockBytes; },
      [](LeftSave& left) { left.audit.pop_back(); },
      [](LeftSave& left) { left.audit.front().offset = ~std::uint64_t{0}; },
      [](LeftSave& left) { left.audit.front().bytes = ~std::uint64_t{0}; },
      [](LeftSave& left) { left.audit_sections.front().begin -= 1; },
      [](LeftSave& left) { left.audit_sections.back().end += std::uint64_t{1} << 40; },
      [](LeftSave& left) { left.files.front().header_bytes += kPageBytes; },
  });
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SimDisk disk;
    begin_run(disk);
    LeftTrainer gone = trainer(disk, {.audit = true});
    gone.go_to(End::kCaptured);
    LeftSave left = gone.left();
    changes[i](left);
    const auto refused = finish_in_order(disk, left, gone.arena());
    ASSERT_FALSE(refused) << i;
    EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt) << i << refused.error().message();
  }
}

// The second file's bytes would be those of the first, and all checksums would agree.
TEST_F(FinishSaveTest, FilesThatLieInEachOtherAreRefused) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk, {.several_files = true});
  gone.go_to(End::kCaptured);
  LeftSave left = gone.left();
  ASSERT_EQ(left.files[1].section.size(), left.files[0].section.size());
  left.files[1].section = left.files[0].section;
  const auto refused = finish_in_order(disk, left, gone.arena());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt);
}

// Writers take it for granted; and if all bytes are equal no checksum tells.
TEST_F(FinishSaveTest, AFileThatBeginsWithinASlabIsRefused) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kCaptured);
  std::ranges::fill(gone.arena(), std::byte{0});
  LeftSave left = gone.left();
  Section& section = left.files.front().section;
  section = {.begin = kBlockBytes, .end = kBlockBytes + section.size()};
  left.block_crcs.clear();
  for (std::uint64_t at = 0; at < section.end; at += kBlockBytes) {
    const auto bytes = std::min<std::uint64_t>(kBlockBytes, section.end - at);
    left.block_crcs.push_back(crc32c(gone.arena().subspan(at, bytes)));
  }
  const auto refused = finish_in_order(disk, left, gone.arena());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt) << refused.error().message();
}

TEST_F(FinishSaveTest, MemoryThatIsTooSmallIsRefused) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kCaptured);
  const LeftSave left = gone.left();
  const auto refused = finish_in_order(disk, left, gone.arena().first(8 * kLeftFloats - 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt);
}

TEST_F(FinishSaveTest, ASaveThatCouldNotBeDescribedIsNobodysToFinish) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kCaptured);
  SavePlan bad = gone.plan();
  bad.identity.run_id = "no run id";
  EXPECT_FALSE(gone.handover().plan(bad, {}));
  const std::array<std::uint32_t, 1> crcs{7};
  EXPECT_TRUE(gone.handover().captured(crcs));
  EXPECT_EQ(*gone.finish(), LeftOutcome::kNothing);
  gone.go_to(End::kCaptured);  // the next one can be
  EXPECT_EQ(*gone.finish(), LeftOutcome::kCommitted);
}

TEST(Handover, OfAnotherKindOrCutShortIsRefused) {
  const auto made = Handover::make();
  ASSERT_TRUE(made);
  EXPECT_EQ(read_handover((*made)->fd())->state, HandoverState::kNone);
  ASSERT_EQ(::pwrite((*made)->fd(), "\4", 1, 8), 1);  // a state that there is not
  EXPECT_EQ(read_handover((*made)->fd()).error().code(), ErrorCode::kUnsupported);
  ASSERT_EQ(::pwrite((*made)->fd(), "\1", 1, 8), 1);  // planned, and nothing is there
  EXPECT_EQ(read_handover((*made)->fd()).error().code(), ErrorCode::kCorrupt);
  ASSERT_EQ(::pwrite((*made)->fd(), "X", 1, 0), 1);
  EXPECT_EQ(read_handover((*made)->fd()).error().code(), ErrorCode::kUnsupported);
}

// A listing that fails is no directory without files.
TEST_F(FinishSaveTest, AReadThatFailsIsTheErrorThatIsTold) {
  bool is_committed = false;
  for (std::size_t index = 0; !is_committed; ++index) {
    SimDisk disk;
    begin_run(disk);
    LeftTrainer gone = trainer(disk);
    gone.go_to(End::kSealed);
    disk.fail_read_at(disk.read_count() + index, EIO);
    const auto outcome = gone.finish();
    is_committed = outcome && !disk.injected();
    if (outcome) continue;  // it did without
    EXPECT_EQ(outcome.error().os_errno(), EIO) << index << ": " << outcome.error().message();
  }
}

// The trainer died between the rename of its manifest and the sync.
TEST_F(FinishSaveTest, AManifestThatIsThereIsMadeDurable) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk);
  gone.go_to(End::kSealed);
  const auto rehearsal = disk.clone();
  ASSERT_TRUE(commit_attempt(*rehearsal, make_request(gone.plan().identity)));
  disk.ignore_sync(disk.operation_count() + rehearsal->operation_count() - 1);
  ASSERT_TRUE(commit_attempt(disk, make_request(gone.plan().identity)));
  ASSERT_GT(disk.pending_count(), 0U);
  EXPECT_EQ(*gone.finish(), LeftOutcome::kCommitted);
  for (const auto& image : disk.crash_images(100, 1)) expect_whole_or_nothing(*image, true, true);
}

TEST(Handover, FactsThatMakeNoSenseAreRefused) {
  const auto made = Handover::make();
  const auto refused = [fd = (*made)->fd()](const std::string& object) {
    const std::string facts = seal_text(object);
    const std::uint64_t bytes = facts.size();
    EXPECT_EQ(::pwrite(fd, facts.data(), facts.size(), kPageBytes),
              static_cast<ssize_t>(facts.size()));
    EXPECT_EQ(::pwrite(fd, &bytes, sizeof(bytes), 16), 8);
    EXPECT_EQ(::pwrite(fd, "\1", 1, 8), 1);  // planned
    const auto left = read_handover(fd);
    return left ? "taken" : left.error().message();
  };
  const std::string rest = R"(,"audit":[],"audit_sections":[],"commit_wait_ms":0})";
  EXPECT_NE(refused(R"({"files":7)" + rest).find("files is missing"), std::string::npos);
  EXPECT_NE(refused(R"({"files":[])" + rest).find("names no file"), std::string::npos);
  EXPECT_NE(refused(R"({"files":[{"header_bytes":4096,"begin":2,"end":1}])" + rest)
                .find("ends before it begins"),
            std::string::npos);
  EXPECT_NE(refused(R"({"files":[{"header_bytes":1099511627776,"begin":1,"end":2}])" + rest)
                .find("header is too long"),
            std::string::npos);
}

// Power goes while the save is finished: the checkpoint is there whole, or it is not there.
TEST_F(FinishSaveTest, APowerCutAnywhereLosesNothingThatWasTold) {
  constexpr std::size_t kImagesMax = DF_FINISH_IMAGES;  // fewer under a sanitizer
  constexpr std::uint64_t kSeed = 5;
  std::size_t states = 0;
  for (const End end : kEnds) {
    for (const bool several : {false, true}) {
      std::size_t operations = 0;  // of the one that finishes it
      for (std::size_t index = 0; index <= operations; ++index) {
        SimDisk disk;
        begin_run(disk);
        LeftTrainer gone = trainer(disk, {.several_files = several});
        gone.go_to(end);
        const std::size_t left_at = disk.operation_count();
        if (index == 0) operations = operations_of(gone, disk);
        disk.crash_at(left_at + index);
        const auto outcome = gone.finish();
        const bool is_told = outcome && *outcome == LeftOutcome::kCommitted;
        EXPECT_EQ(is_told, is_captured(end) && index == operations);
        for (const auto& image : disk.crash_images(kImagesMax, kSeed)) {
          ++states;
          SCOPED_TRACE(
              fmt::format("end {}, cut at {}, {}", static_cast<int>(end), index, image->label()));
          expect_whole_or_nothing(*image, is_told, is_captured(end));
          ASSERT_FALSE(HasFailure());
        }
      }
    }
  }
  std::printf("%zu states\n", states);
  EXPECT_GT(states, 10U * DF_FINISH_IMAGES);
}

// Its trainer had linked the cold file of an earlier attempt.
TEST_F(FinishSaveTest, AFileThatIsLinkedIsWrittenAnewAndNotThroughTheLink) {
  SimDisk disk;
  begin_run(disk);
  LeftTrainer gone = trainer(disk, {.cold = true});
  gone.go_to(End::kBegun);
  disk.plant("step-earlier/cold", "bytes of an earlier attempt");
  const std::string part = attempt_dir_name(name_of(gone.plan().identity)) + "/" +
                           part_file_name(gone.plan().identity_of(1).part);
  ASSERT_TRUE(disk.link_file("step-earlier/cold", part));
  const auto finished = gone.finish();
  ASSERT_TRUE(finished) << finished.error().message();
  EXPECT_EQ(*finished, LeftOutcome::kCommitted);
  EXPECT_EQ(disk.contents(gone.path_of(1)), gone.whole_file(1));
  EXPECT_EQ(disk.contents("step-earlier/cold"), "bytes of an earlier attempt");
}

}  // namespace
}  // namespace deepfreeze
