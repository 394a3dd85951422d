#include "nodes/commit_node.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "nodes/nodes_fixture.h"
#include "support/passing_vfs.h"

namespace deepfreeze::nodes_test {
namespace {

using std::chrono::milliseconds;

template <class Message>
const Message* sent_as(const TestNode& node) {
  for (const auto& sent : node.mail.sent) {
    if (const auto* message = std::get_if<Message>(&sent.message)) return message;
  }
  return nullptr;
}

std::optional<ErrorCode> code_of_end(const std::optional<Result<Manifest>>& end) {
  return end ? code_of(*end) : std::nullopt;
}

class CommitNode : public TwoNodes {
 protected:
  CommitNode() {
    set_log_sink([this](std::string_view line) { log_ += line; });
  }
  ~CommitNode() override { set_log_sink({}); }

  // Both nodes have sealed, and the far one has reported.
  void report() {
    seal_all();
    zero_ = start(near_);
    two_ = start(far_);
    EXPECT_FALSE(two_->advance().has_value());
    deliver(far_, near_);
  }
  // These are the bytes of the second part on rank 0's node.
  void expect_given_up_with(const std::string& bytes, ErrorCode code) {
    ASSERT_TRUE(near_.disk.remove_file(file(1)));
    near_.disk.plant(file(1), bytes);
    EXPECT_EQ(code_of_end(zero_->advance()), code);
    EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
  }
  void expect_in_doubt() {
    two_.reset();
    EXPECT_EQ(far_.ledger.doubts(), std::vector{attempt_});
    EXPECT_EQ(outcome_on(far_), std::nullopt);
    EXPECT_TRUE(far_.disk.contents(file(2)) && far_.disk.contents(file(3)));
  }

  std::unique_ptr<NodeCommit> zero_;
  std::unique_ptr<NodeCommit> two_;
  std::string log_;
};

TEST_F(CommitNode, GivesBothDirectoriesOneRecordOfAllFiles) {
  report();
  const auto decided = zero_->advance();
  ASSERT_TRUE(decided && *decided) << (*decided).error().message();
  EXPECT_EQ((*decided)->files.size(), 4U);
  EXPECT_EQ(outcome_on(far_), std::nullopt);
  deliver(near_, far_);
  const auto placed = two_->advance();
  ASSERT_TRUE(placed && *placed) << (*placed).error().message();
  EXPECT_EQ(record_on(near_), record_on(far_));
  two_.reset();
  EXPECT_TRUE(far_.ledger.doubts().empty());
}

TEST_F(CommitNode, WaitsForEveryPartAndReport) {
  zero_ = start(near_);
  two_ = start(far_);
  seal(near_, 0);
  seal(far_, 2);
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_TRUE(far_.mail.sent.empty());
  EXPECT_FALSE(zero_->advance().has_value());
  seal(far_, 3);
  EXPECT_FALSE(two_->advance().has_value());
  deliver(far_, near_);
  EXPECT_FALSE(zero_->advance().has_value());
  seal(near_, 1);
  const auto decided = zero_->advance();
  EXPECT_TRUE(decided && *decided);
}

// Threads, as in a job: letters that have come wake no thread that looks for files.
TEST_F(CommitNode, BlocksUntilBothHaveTheOutcome) {
  class Post final : public Mail {
   public:
    Post(std::uint32_t own, std::array<std::deque<Letter>, 2>& boxes, std::mutex& mutex)
        : own_(own), boxes_(boxes), mutex_(mutex) {}
    Status send(std::uint32_t rank, const LinkMessage& message) override {
      const std::lock_guard lock(mutex_);
      boxes_[rank / 2].push_back({.rank = own_, .message = message});
      return {};
    }
    Result<Letter> take(milliseconds timeout) override {
      std::this_thread::sleep_for(timeout);
      const std::lock_guard lock(mutex_);
      auto& own = boxes_[own_ / 2];
      if (own.empty()) return fail(ErrorCode::kTimeout, "none");
      Letter letter = std::move(own.front());
      own.pop_front();
      return letter;
    }

   private:
    std::uint32_t own_;
    std::array<std::deque<Letter>, 2>& boxes_;
    std::mutex& mutex_;
  };
  std::array<std::deque<Letter>, 2> boxes;
  std::mutex mutex;
  Post post_0(0, boxes, mutex);
  Post post_2(2, boxes, mutex);
  const auto commit = [&](TestNode& node, Post& post) {
    const Leader leader{.vfs = node.disk, .mail = post, .ledger = node.ledger, .claim = node.claim};
    return commit_node(leader, {.identity = identity(node.ledger.own()),
                                .commit_wait_max = std::chrono::seconds(20)});
  };
  std::optional<Result<Manifest>> far;
  seal(near_, 0);
  seal(far_, 2);
  {
    const std::jthread other([&] { far = commit(far_, post_2); });
    seal(far_, 3);
    seal(near_, 1);
    const auto near = commit(near_, post_0);
    EXPECT_TRUE(near) << near.error().message();
  }
  ASSERT_TRUE(far && *far) << (*far).error().message();
  EXPECT_EQ(record_on(near_), record_on(far_));
}

TEST_F(CommitNode, EndsAtItsDeadline) {
  seal_all();
  const NodeSave save{.identity = identity(0), .commit_wait_max = milliseconds(5)};
  const auto near = commit_node(near_.leader(), save);
  ASSERT_EQ(code_of(near), ErrorCode::kIncomplete);
  EXPECT_NE(near.error().message().find("rank 2 has not reported"), std::string::npos);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
  EXPECT_NE(sent_as<LinkDecided>(near_), nullptr);
  const auto far =
      commit_node(far_.leader(), {.identity = identity(2), .commit_wait_max = milliseconds(5)});
  ASSERT_EQ(code_of(far), ErrorCode::kTimeout);
  EXPECT_TRUE(far.error().message().starts_with("outcome unknown"));
  expect_in_doubt();
}

TEST_F(CommitNode, SaysWhichOwnPartIsMissing) {
  seal(near_, 0);
  zero_ = start(near_);
  EXPECT_FALSE(zero_->advance().has_value());
  const auto ended = zero_->time_out();
  ASSERT_EQ(code_of(ended), ErrorCode::kIncomplete);
  EXPECT_NE(ended.error().message().find("rank-00001"), std::string::npos);
}

// N2: the name of another rank's file is durable before it is reported.
TEST_F(CommitNode, SyncsNamesBeforeItReportsThem) {
  report();
  EXPECT_EQ(far_.disk.pending_count(), 0U);
  ASSERT_TRUE(far_.disk.rename_no_replace(file(3), directory_ + "/elsewhere"));
  ASSERT_TRUE(far_.disk.rename_no_replace(directory_ + "/elsewhere", file(3)));
  EXPECT_GT(far_.disk.pending_count(), 0U);
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_NE(sent_as<LinkSealed>(far_), nullptr);
  EXPECT_EQ(far_.disk.pending_count(), 0U);
}

TEST_F(CommitNode, ReportsAFailureInsteadOfNamesThatItCantSync) {
  seal_all();
  far_.disk.fail_at(far_.disk.operation_count(), EIO);
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(sent_as<LinkPart>(far_), nullptr);
  ASSERT_NE(sent_as<LinkFailed>(far_), nullptr);
  zero_ = start(near_);
  deliver(far_, near_);
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kIo);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
  deliver(near_, far_);
  EXPECT_EQ(code_of_end(two_->advance()), ErrorCode::kCancelled);
  EXPECT_EQ(outcome_on(far_), Outcome::kAborted);
}

TEST_F(CommitNode, TellsTheFailureOfARankAndTakesTheOutcome) {
  seal_all();
  report_failed_part(far_.disk, name_, identity(3).part, Error(ErrorCode::kInternal, "late"));
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(far_.mail.sent.size(), 1U);
  EXPECT_EQ(outcome_on(far_), std::nullopt);  // that is for rank 0 to decide
  zero_ = start(near_);
  deliver(far_, near_);
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kIncomplete);
  deliver(near_, far_);
  const auto told = two_->advance();
  ASSERT_EQ(code_of_end(told), ErrorCode::kCancelled);
  EXPECT_NE((*told).error().message().find("late"), std::string::npos);
}

TEST_F(CommitNode, TellsTheFailureOfTheLeaderItself) {
  seal(far_, 3);
  two_ = start(far_, Error(ErrorCode::kNoSpace, "full"));
  EXPECT_FALSE(two_->advance().has_value());
  ASSERT_NE(sent_as<LinkFailed>(far_), nullptr);
  EXPECT_EQ(sent_as<LinkFailed>(far_)->error.code(), ErrorCode::kNoSpace);
  seal(near_, 0);
  zero_ = start(near_, Error(ErrorCode::kIo, "broken"));
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kIo);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
}

// Rank 0, whose directory may not have the other claim, must not wait for the report.
TEST_F(CommitNode, DoesNotReportForAFencedClaim) {
  seal_all();
  far_.disk.plant(generation_file_name(2), "whatever it is");
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value()) << "the other ranks of its node wait for the outcome";
  EXPECT_EQ(far_.mail.sent.size(), 1U);
  ASSERT_NE(sent_as<LinkFailed>(far_), nullptr);
  EXPECT_EQ(sent_as<LinkFailed>(far_)->error.code(), ErrorCode::kFenced);
  zero_ = start(near_);
  deliver(far_, near_);
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kFenced);
  deliver(near_, far_);
  EXPECT_EQ(code_of_end(two_->advance()), ErrorCode::kFenced);
  EXPECT_EQ(outcome_on(far_), Outcome::kAborted);
}

// The disk has refused the attempt's directory: that nothing is there is no outcome.
TEST_F(CommitNode, TellsOfAFailureBeforeItLooksForAnOutcome) {
  ASSERT_TRUE(remove_attempt(far_.disk, {identity(2).step, identity(2).attempt_id}));
  two_ = start(far_, Error(ErrorCode::kNoSpace, "full"));
  far_.mail.is_down = true;
  EXPECT_FALSE(two_->advance().has_value());
  far_.mail.is_down = false;
  EXPECT_EQ(code_of_end(two_->advance()), ErrorCode::kCancelled);
  ASSERT_NE(sent_as<LinkFailed>(far_), nullptr);
  EXPECT_EQ(sent_as<LinkFailed>(far_)->error.code(), ErrorCode::kNoSpace);
}

TEST_F(CommitNode, DoesNotReportWithoutItsClaim) {
  seal_all();
  far_.claim.claimant = 6;
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(sent_as<LinkSealed>(far_), nullptr);
  ASSERT_NE(sent_as<LinkFailed>(far_), nullptr);
  EXPECT_EQ(sent_as<LinkFailed>(far_)->error.code(), ErrorCode::kNotFound);
}

TEST_F(CommitNode, OfAFencedRank0GivesUp) {
  report();
  near_.disk.plant(generation_file_name(2), "whatever it is");
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kFenced);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
}

TEST_F(CommitNode, RefusesFilesThatAreOfAnotherAttempt) {
  seal_all();
  const std::string strange = far_.disk.contents(file(2)).value();
  ASSERT_TRUE(far_.disk.remove_file(file(3)));
  far_.disk.plant(file(3), strange);
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  ASSERT_NE(sent_as<LinkFailed>(far_), nullptr);
  EXPECT_EQ(sent_as<LinkFailed>(far_)->error.code(), ErrorCode::kMismatch);
}

// Rank 0's disk was full: it has removed the attempt before this node came to commit.
TEST_F(CommitNode, TakesAGoneThatCameBeforeItHasBegun) {
  seal_all();
  say(far_, LinkGone{attempt_});
  two_ = start(far_);
  EXPECT_EQ(code_of_end(two_->advance()), ErrorCode::kCancelled);
  EXPECT_FALSE(far_.disk.contents(file(2)));
}

// An exception has ended the commit that reported; then the failure is told, and comes too late.
TEST_F(CommitNode, TakesACommitOfFilesThatItReportedBefore) {
  report();
  two_ = start(far_, Error(ErrorCode::kNoSpace, "no memory"));
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_FALSE(code_of_end(zero_->advance()));
  deliver(near_, far_);
  EXPECT_FALSE(code_of_end(two_->advance()));
  EXPECT_EQ(outcome_on(far_), Outcome::kCommitted);
}

TEST_F(CommitNode, ReportsAgainOnceTheLinkIsBack) {
  seal_all();
  two_ = start(far_);
  far_.mail.is_down = true;
  EXPECT_FALSE(two_->advance().has_value());
  far_.mail.is_down = false;
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(far_.mail.sent.size(), 3U);  // two parts, and that all are sealed
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(far_.mail.sent.size(), 3U);
  far_.mail.sent.clear();  // they were lost
  far_.mail.inbox.push_back({.rank = 0});
  EXPECT_TRUE(take_letters(far_.leader(), milliseconds(0)));
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(far_.mail.sent.size(), 3U);
}

TEST_F(CommitNode, AnswersAReportThatComesAfterTheOutcome) {
  report();
  ASSERT_TRUE(*zero_->advance());
  near_.mail.sent.clear();  // the outcome was lost
  zero_.reset();
  far_.mail.inbox.push_back({.rank = 0});
  EXPECT_TRUE(take_letters(far_.leader(), milliseconds(0)));
  EXPECT_FALSE(two_->advance().has_value());
  deliver(far_, near_);
  deliver(near_, far_);
  const auto placed = two_->advance();
  EXPECT_TRUE(placed && *placed);
}

// N6: a name that a cut may take back is told to nobody.
TEST_F(CommitNode, TellsNoOutcomeWhoseSyncFailed) {
  report();
  // tmp: create, write, sync; rename; the sync of the directory.
  const std::size_t begin = near_.disk.operation_count();
  near_.disk.fail_at(begin + 4, EIO);
  near_.disk.fail_at(begin + 5, EIO);
  const auto ended = zero_->advance();
  ASSERT_EQ(code_of_end(ended), ErrorCode::kIo);
  EXPECT_NE((*ended).error().message().find("outcome unknown"), std::string::npos);
  EXPECT_EQ(near_.mail.sent.size(), 0U);
  zero_.reset();
  say(near_, LinkAsk{attempt_});  // the next sync succeeds
  EXPECT_NE(sent_as<LinkDecided>(near_), nullptr);
  EXPECT_EQ(near_.disk.pending_count(), 0U);
}

TEST_F(CommitNode, AnswersUnknownWhileItIsUnderWay) {
  near_.ledger.begin(attempt_);
  say(near_, LinkAsk{attempt_});
  EXPECT_NE(sent_as<LinkUnknown>(near_), nullptr);
  near_.mail.sent.clear();
  near_.ledger.end(attempt_);
  say(near_, LinkAsk{attempt_});
  EXPECT_NE(sent_as<LinkGone>(near_), nullptr);
}

TEST_F(CommitNode, NeverSaysGoneWithoutItsClaimInPlace) {
  near_.claim.claimant = 6;
  say(near_, LinkAsk{attempt_});
  EXPECT_NE(sent_as<LinkUnknown>(near_), nullptr);
  EXPECT_EQ(sent_as<LinkGone>(near_), nullptr);
}

TEST_F(CommitNode, NeverSaysGoneOfADirectoryThatIsNotInPlace) {
  class Moved final : public PassingVfs {
   public:
    Moved(Vfs& disk, Result<bool> is_there) : PassingVfs(disk), is_there_(std::move(is_there)) {}
    Result<bool> is_in_place() override { return is_there_; }

   private:
    const Result<bool> is_there_;
  };
  for (const Result<bool>& is_there :
       {Result<bool>(false), Result<bool>(fail(ErrorCode::kIo, ""))}) {
    Moved moved(near_.disk, is_there);
    const Leader leader{
        .vfs = moved, .mail = near_.mail, .ledger = near_.ledger, .claim = near_.claim};
    EXPECT_TRUE(std::holds_alternative<LinkUnknown>(outcome_on_disk(leader, attempt_)));
  }
}

TEST_F(CommitNode, SaysUnknownOfAnAttemptThatIsUndecided) {
  seal(near_, 0);
  say(near_, LinkAsk{attempt_});
  EXPECT_NE(sent_as<LinkUnknown>(near_), nullptr);
  near_.mail.sent.clear();
  near_.disk.plant(join_name(directory_, kManifestFile), "damaged");
  say(near_, LinkAsk{attempt_});
  EXPECT_NE(sent_as<LinkUnknown>(near_), nullptr);
}

TEST_F(CommitNode, AsksAboutADoubtUntilItIsSettled) {
  report();
  std::ignore = two_->time_out();
  expect_in_doubt();
  ask_about_doubts(far_.leader());
  deliver(far_, near_);
  deliver(near_, far_);  // unknown: rank 0 is at it
  settle_doubts(far_.leader());
  EXPECT_EQ(far_.ledger.doubts().size(), 1U);
  ASSERT_TRUE(*zero_->advance());
  near_.mail.sent.clear();
  zero_.reset();
  ask_about_doubts(far_.leader());
  deliver(far_, near_);
  deliver(near_, far_);
  settle_doubts(far_.leader());
  EXPECT_TRUE(far_.ledger.doubts().empty());
  EXPECT_EQ(record_on(near_), record_on(far_));
}

TEST_F(CommitNode, AbortsAndRemovesAnAttemptThatIsGone) {
  report();
  std::ignore = two_->time_out();
  two_.reset();
  say(far_, LinkGone{attempt_});
  settle_doubts(far_.leader());
  EXPECT_TRUE(far_.ledger.doubts().empty());
  EXPECT_FALSE(far_.disk.contents(file(2)).has_value());
  EXPECT_FALSE(far_.disk.list(directory_).has_value());
}

TEST_F(CommitNode, KeepsAnAttemptThatIsGoneFromUnderAnotherClaim) {
  report();
  std::ignore = two_->time_out();
  two_.reset();
  far_.claim.claimant = 6;
  say(far_, LinkGone{attempt_});
  settle_doubts(far_.leader());
  expect_in_doubt();
}

// Rank 0 has claimed the run anew: of that claim its directory has nothing, of the one before it
// may.
TEST_F(CommitNode, KeepsAnAttemptOfAnEarlierClaimThatIsGone) {
  report();
  std::ignore = two_->time_out();
  two_.reset();
  far_.claim.generation = 2;
  far_.disk.plant(generation_file_name(2), encode_generation(far_.claim));
  say(far_, LinkGone{attempt_});
  settle_doubts(far_.leader());
  expect_in_doubt();
}

TEST_F(CommitNode, TakesNoOutcomeThatDoesNotListItsFiles) {
  report();
  ASSERT_TRUE(*zero_->advance());
  Manifest other = read_manifest(near_.disk, name_, run_id_).value();
  const auto refuses = [&](const std::string& text) {
    say(far_, LinkDecided{attempt_, text});
    return !two_->advance().has_value() && outcome_on(far_) == std::nullopt;
  };
  EXPECT_TRUE(refuses("no record"));
  ++other.files[2].header_crc;
  EXPECT_TRUE(refuses(encode_manifest(other)));
  --other.files[2].header_crc;
  other.files.pop_back();
  EXPECT_TRUE(refuses(encode_manifest(other)));
  Manifest foreign = read_manifest(near_.disk, name_, run_id_).value();
  ++foreign.point.attempt_id;
  EXPECT_TRUE(refuses(encode_manifest(foreign)));
  --foreign.point.attempt_id;
  ++foreign.point.generation;
  EXPECT_TRUE(refuses(encode_manifest(foreign)));
  --foreign.point.generation;
  ++foreign.world_size;
  EXPECT_TRUE(refuses(encode_manifest(foreign)));
  --foreign.world_size;
  foreign.run_id = "fedcba9876543210";
  EXPECT_TRUE(refuses(encode_manifest(foreign)));
  Manifest more = read_manifest(near_.disk, name_, run_id_).value();
  more.files.push_back({sealed_file_name({9, 10, 0, 1}), 1, 1});
  EXPECT_TRUE(refuses(encode_manifest(more))) << "of a rank that the job does not have";
  Manifest aborted;
  aborted.outcome = Outcome::kAborted;
  aborted.run_id = run_id_;
  aborted.point = {1, 5, 5, attempt_.attempt_id + 1};
  EXPECT_TRUE(refuses(encode_manifest(aborted))) << "of another attempt";
  EXPECT_NE(log_.find("rank 0's outcome"), std::string::npos);
  deliver(near_, far_);
  const auto placed = two_->advance();
  EXPECT_TRUE(placed && *placed);
}

TEST_F(CommitNode, TakesNoOutcomeOfFilesThatItHasNotReported) {
  seal_all();
  report_failed_part(far_.disk, name_, identity(3).part, Error(ErrorCode::kIo, "failed"));
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  Manifest manifest;
  manifest.run_id = run_id_;
  manifest.point = {1, 5, 5, 9};
  manifest.world_size = 4;
  say(far_, LinkDecided{attempt_, encode_manifest(manifest)});
  EXPECT_FALSE(two_->advance().has_value());
  EXPECT_EQ(outcome_on(far_), std::nullopt);
}

// N7: the files that the record lists must still be there.
TEST_F(CommitNode, StaysInDoubtWhenAReportedFileIsGone) {
  report();
  ASSERT_TRUE(*zero_->advance());
  deliver(near_, far_);
  ASSERT_TRUE(far_.disk.remove_file(file(3)));
  const auto ended = two_->advance();
  ASSERT_EQ(code_of_end(ended), ErrorCode::kIo);
  EXPECT_TRUE((*ended).error().message().starts_with("outcome unknown"));
  EXPECT_EQ(outcome_on(far_), std::nullopt);
}

TEST_F(CommitNode, StaysInDoubtUntilTheRecordIsDurableHere) {
  report();
  ASSERT_TRUE(*zero_->advance());
  deliver(near_, far_);
  far_.disk.fail_at(far_.disk.operation_count() + 4, EIO);  // the directory's sync
  EXPECT_EQ(code_of_end(two_->advance()), ErrorCode::kIo);
  two_.reset();
  EXPECT_EQ(far_.ledger.doubts().size(), 1U);
  settle_doubts(far_.leader());
  EXPECT_TRUE(far_.ledger.doubts().empty());
  EXPECT_EQ(far_.disk.pending_count(), 0U);
}

TEST_F(CommitNode, TakesAnOutcomeThatAnotherProcessHasPlacedHere) {
  report();
  ASSERT_TRUE(*zero_->advance());
  const Manifest manifest = read_manifest(near_.disk, name_, run_id_).value();
  ASSERT_TRUE(place_decided(far_.disk, {manifest, encode_manifest(manifest), {}}));
  const auto taken = two_->advance();
  ASSERT_TRUE(taken && *taken);
  two_.reset();
  EXPECT_TRUE(far_.ledger.doubts().empty());
}

TEST_F(CommitNode, SeesThatTheAttemptWasAbortedInTheDecidingDirectory) {
  report();
  give_attempt_up(near_.disk, identity(1));
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kCancelled);
  deliver(near_, far_);
  EXPECT_EQ(code_of_end(two_->advance()), ErrorCode::kCancelled);
  EXPECT_EQ(outcome_on(far_), Outcome::kAborted);
}

TEST_F(CommitNode, ChecksTheHeadersOfAllNodesTogether) {
  seal_all();
  zero_ = start(near_);
  // A header of the far node stores a tensor that rank 0 stores, too.
  Identity own = identity(2);
  const auto data = make_data(own, kTestDataBytes);
  ShardHeader header = make_header(own, data);
  header.entries.front().spec.key = "weights_0_0";
  ASSERT_TRUE(far_.disk.remove_file(file(2)));
  ASSERT_TRUE(write_part(far_.disk, file(2), header, data));
  two_ = start(far_);
  EXPECT_FALSE(two_->advance().has_value());
  deliver(far_, near_);
  EXPECT_EQ(code_of_end(zero_->advance()), ErrorCode::kMismatch);
  EXPECT_EQ(outcome_on(near_), Outcome::kAborted);
}

TEST_F(CommitNode, OfRank0RefusesAnOwnPartThatIsDamaged) {
  report();
  std::string damaged = near_.disk.contents(file(1)).value();
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  expect_given_up_with(damaged, ErrorCode::kCorrupt);
}

TEST_F(CommitNode, OfRank0RefusesAnOwnPartThatIsAnothers) {
  report();
  expect_given_up_with(near_.disk.contents(file(0)).value(), ErrorCode::kMismatch);
}

}  // namespace
}  // namespace deepfreeze::nodes_test
