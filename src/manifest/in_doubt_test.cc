#include "manifest/in_doubt.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "manifest/two_nodes.h"
#include "support/code_of.h"

namespace deepfreeze::in_doubt_test {
namespace {

constexpr std::size_t kImagesMax = 500;
constexpr AttemptName kAttempt{3, 3};

std::optional<NodeMarker> marker(std::uint64_t node) {
  return NodeMarker{.record = NodeRecord{.node = node, .host = "h"}};
}

Claim claim(std::uint64_t generation, std::optional<std::uint64_t> node) {
  GenerationRecord record;
  record.generation = generation;
  record.node = node;
  return {.generation = generation, .record = record};
}

Identity of_generation(std::uint64_t generation) {
  return make_identity("run", {generation, 3, 3, 3});
}

TEST(DoubtAbout, TheClaimOfTheAttemptsGenerationDecides) {
  const std::vector<Claim> claims = {claim(1, 0xa), claim(2, 0xb), claim(3, std::nullopt)};
  const auto own = marker(0xb);
  const auto doubt = doubt_about({claims, own}, of_generation(1));
  ASSERT_TRUE(doubt);
  EXPECT_EQ(doubt->node, 0xaU);
  EXPECT_EQ(doubt->identity, of_generation(1));
  EXPECT_EQ(describe(*doubt), "in doubt: node 000000000000000a decides");
  EXPECT_FALSE(doubt_about({claims, own}, of_generation(2))) << "it names this directory";
  EXPECT_FALSE(doubt_about({claims, own}, of_generation(3))) << "it names none";
}

// An empty disk, a tier, a directory whose node.json is damaged.
TEST(DoubtAbout, ADirectoryWithoutReadableDigitsDecidesNothingThatAClaimGivesToANode) {
  const std::vector<Claim> claims = {claim(1, 0xa), claim(2, std::nullopt)};
  for (const std::optional<NodeMarker>& own : {std::optional<NodeMarker>(), {NodeMarker{}}}) {
    const auto doubt = doubt_about({claims, own}, of_generation(1));
    ASSERT_TRUE(doubt);
    EXPECT_EQ(doubt->node, 0xaU);
    EXPECT_FALSE(doubt_about({claims, own}, of_generation(2)));
  }
}

TEST(DoubtAbout, AClaimThatIsLostTellsNothing) {
  const std::vector<Claim> claims = {claim(1, 0xb), {.generation = 2, .record = {}}};
  const auto own = marker(0xb);
  for (const std::uint64_t generation : {2U, 7U}) {
    const auto doubt = doubt_about({claims, own}, of_generation(generation));
    ASSERT_TRUE(doubt) << generation;
    EXPECT_EQ(doubt->node, std::nullopt);
    EXPECT_EQ(doubt->identity, of_generation(generation));
    EXPECT_TRUE(describe(*doubt).contains("no claim here tells"));
  }
}

TEST(DoubtAbout, WithoutAHeaderEveryClaimMustGiveTheRight) {
  const auto own = marker(0xb);
  const std::vector<Claim> ours = {claim(1, 0xb), claim(2, std::nullopt)};
  EXPECT_FALSE(doubt_about({ours, own}, std::nullopt));
  const std::vector<Claim> mixed = {claim(1, 0xb), claim(2, 0xa)};
  const auto doubt = doubt_about({mixed, own}, std::nullopt);
  ASSERT_TRUE(doubt);
  EXPECT_EQ(doubt->identity, std::nullopt);
  EXPECT_EQ(doubt->node, std::nullopt);
}

// Runs of one directory: this directory decides, even if records are lost.
TEST(DoubtAbout, NothingIsInDoubtIfNoRecordNamesANode) {
  const std::vector<Claim> claims = {claim(1, std::nullopt), {.generation = 2, .record = {}}};
  const std::optional<NodeMarker> none;
  for (const std::uint64_t generation : {1U, 2U, 7U}) {
    EXPECT_FALSE(doubt_about({claims, none}, of_generation(generation)));
  }
  EXPECT_FALSE(doubt_about({claims, none}, std::nullopt));
}

class InDoubt : public testing::Test {
 protected:
  InDoubt() { nodes_.claim(); }

  AttemptState state(SimDisk& disk) {
    const auto listing = read_run(disk);
    EXPECT_TRUE(listing) << listing.error().message();
    EXPECT_EQ(listing->attempts.size(), 1U);
    return listing->attempts.at(0);
  }
  Question question() {
    const auto asked = questions(read_run(nodes_.other).value());
    EXPECT_EQ(asked.size(), 1U);
    return asked.at(0);
  }
  std::size_t abort_all(SimDisk& disk) {
    const std::uint64_t generation = nodes_.claim();
    const auto count = abort_undecided(disk, read_run(disk).value(), generation);
    EXPECT_TRUE(count) << count.error().message();
    return count.value_or(0);
  }

  TwoNodes nodes_;
};

TEST_F(InDoubt, ASealedFileWithoutAnOutcomeIsIn) {
  nodes_.seal(3);
  const AttemptState there = state(nodes_.other);
  ASSERT_TRUE(there.doubt);
  EXPECT_TRUE(there.undecided()) << "for everybody";
  EXPECT_EQ(there.doubt->node, TwoNodes::kDecider);
  EXPECT_EQ(there.doubt->identity, nodes_.identity(3, 1));
  EXPECT_FALSE(state(nodes_.decider).doubt);
  EXPECT_EQ(question(), (Question{nodes_.identity(3, 1), TwoNodes::kDecider}));
  nodes_.other.plant(TwoNodes::manifest_of(3), nodes_.committed_text(3));
  EXPECT_FALSE(state(nodes_.other).doubt);
  EXPECT_TRUE(state(nodes_.other).committed());
}

TEST_F(InDoubt, TheListingHasTheDirectorysOwnDigits) {
  EXPECT_EQ(read_run(nodes_.other)->node->record->node, TwoNodes::kOther);
  EXPECT_EQ(read_run(nodes_.other)->node->record->host, "host1");
  nodes_.other.plant(kNodeFile, "no record");
  EXPECT_EQ(read_run(nodes_.other)->node->record, std::nullopt);
  ASSERT_TRUE(nodes_.other.remove_file(kNodeFile));
  EXPECT_FALSE(read_run(nodes_.other)->node);
}

TEST_F(InDoubt, NobodyIsAskedIfNoClaimNamesANode) {
  nodes_.seal(3, 1);
  nodes_.other.plant(generation_file_name(1), "damaged");
  const RunListing listing = read_run(nodes_.other).value();
  EXPECT_TRUE(listing.attempts.at(0).doubt->identity);
  EXPECT_TRUE(questions(listing).empty());
}

TEST_F(InDoubt, IfNothingCanBeReadItIsStillIn) {
  nodes_.seal(3);
  const auto counted = nodes_.other.clone();
  ASSERT_TRUE(read_run(*counted));
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = nodes_.other.clone();
    disk->fail_read_at(index, EIO);
    const auto listing = read_run(*disk);
    if (!listing || listing->attempts.at(0).fault) continue;
    EXPECT_TRUE(listing->attempts.at(0).doubt) << index;
  }
}

TEST_F(InDoubt, NobodyHereAbortsIt) {
  nodes_.seal(3);
  EXPECT_EQ(abort_all(nodes_.other), 0U);
  EXPECT_EQ(code_of(abort_fenced(nodes_.other, nodes_.run_id, kAttempt)), ErrorCode::kBusy);
  EXPECT_EQ(fenced_identity(nodes_.other, nodes_.run_id, kAttempt), std::nullopt);
  EXPECT_TRUE(state(nodes_.other).doubt);
  EXPECT_EQ(abort_all(nodes_.decider), 1U) << "this directory decides";
}

TEST_F(InDoubt, AnAttemptThatIsDeletedMeanwhileIsNot) {
  const Deciders here = read_deciders(nodes_.other).value();
  EXPECT_EQ(find_doubt(nodes_.other, {here.claims, here.node}, kAttempt), std::nullopt);
}

TEST_F(InDoubt, WithoutAnyClaimNothingIsFenced) {
  nodes_.seal(3);
  ASSERT_TRUE(nodes_.decider.remove_file(generation_file_name(1)));
  EXPECT_EQ(fenced_identity(nodes_.decider, nodes_.run_id, kAttempt), std::nullopt);
}

TEST_F(InDoubt, TheDoctorOfTheDecidingDirectoryMayAbortIt) {
  nodes_.seal(3);
  nodes_.claim();
  EXPECT_TRUE(abort_fenced(nodes_.decider, nodes_.run_id, kAttempt));
  EXPECT_EQ(state(nodes_.decider).manifest->outcome, Outcome::kAborted);
}

TEST_F(InDoubt, AnAttemptWithoutASealedFileIsAbortedAsEver) {
  const Identity own = nodes_.identity(3, 1);
  ASSERT_TRUE(begin_attempt(nodes_.other, kAttempt));
  const std::vector<std::byte> data = make_data(own, kTestDataBytes);
  ASSERT_TRUE(write_part(nodes_.other, attempt_dir_name(kAttempt) + "/" + part_file_name(own.part),
                         make_header(own, data), data));
  EXPECT_FALSE(state(nodes_.other).doubt);
  EXPECT_EQ(abort_all(nodes_.other), 1U);
}

// The listing was made before the file got its name.
TEST_F(InDoubt, WhetherAFileIsSealedIsLookedAtAfterTheClaim) {
  ASSERT_TRUE(begin_attempt(nodes_.other, kAttempt));
  const RunListing before = read_run(nodes_.other).value();
  ASSERT_TRUE(write_and_seal(nodes_.other, nodes_.identity(3, 1)));
  EXPECT_EQ(abort_undecided(nodes_.other, before, nodes_.claim()), 0U);
  EXPECT_TRUE(state(nodes_.other).undecided());
}

TEST_F(InDoubt, AClaimWithoutANodeLeavesAllAsItWas) {
  nodes_.claim(std::nullopt);
  nodes_.seal(3);
  EXPECT_FALSE(state(nodes_.other).doubt);
  EXPECT_EQ(abort_all(nodes_.other), 1U);
}

TEST_F(InDoubt, AHeaderThatCantBeReadAbortsNothing) {
  nodes_.seal(3);
  const std::string path =
      attempt_dir_name(kAttempt) + "/" + sealed_file_name(nodes_.identity(3, 1).part);
  ASSERT_TRUE(nodes_.other.flip_bit(path, 800));
  EXPECT_EQ(abort_all(nodes_.other), 0U);
  const AttemptState there = state(nodes_.other);
  ASSERT_TRUE(there.doubt);
  EXPECT_EQ(there.doubt->identity, std::nullopt);
  EXPECT_TRUE(questions(read_run(nodes_.other).value()).empty());
}

TEST_F(InDoubt, ARunThatIsOpenedTakesNothingFromIt) {
  nodes_.seal(3);
  ASSERT_TRUE(nodes_.other.remove_file(kRunFile));
  EXPECT_EQ(create_or_open_run(nodes_.other, {})->run_id, nodes_.run_id);
  EXPECT_TRUE(state(nodes_.other).doubt);
}

TEST_F(InDoubt, ACommittedOutcomeIsAnsweredAndPlacedToTheByte) {
  nodes_.seal(3);
  nodes_.commit_on_decider(3);
  const std::string committed = nodes_.committed_text(3);
  EXPECT_EQ(abort_all(nodes_.decider), 0U);
  const auto text = answer(nodes_.decider, question());
  ASSERT_TRUE(text && *text);
  const auto placed = place_answer(nodes_.other, question(), **text);
  ASSERT_TRUE(placed) << placed.error().message();
  EXPECT_EQ(placed->outcome, Outcome::kCommitted);
  EXPECT_EQ(nodes_.other.contents(TwoNodes::manifest_of(3)), committed);
  EXPECT_EQ(nodes_.other.pending_count(), 0U);
  EXPECT_TRUE(state(nodes_.other).committed());
}

TEST_F(InDoubt, AnAbortedOutcomeIsAnsweredPlacedAndThenRemoved) {
  nodes_.seal(3);
  EXPECT_EQ(abort_all(nodes_.decider), 1U);
  const auto text = answer(nodes_.decider, question());
  ASSERT_TRUE(text && *text);
  const auto placed = place_answer(nodes_.other, question(), **text);
  ASSERT_TRUE(placed) << placed.error().message();
  EXPECT_EQ(placed->outcome, Outcome::kAborted);
  EXPECT_EQ(nodes_.other.pending_count(), 0U);
  ASSERT_TRUE(remove_attempt(nodes_.other, kAttempt));
  EXPECT_TRUE(read_run(nodes_.other)->attempts.empty());
}

// It may have lost its header, so that its record tells no more than its name.
TEST_F(InDoubt, AnAbortedOutcomeThatKnowsOnlyTheNameIsPlacedToo) {
  ASSERT_TRUE(begin_attempt(nodes_.decider, kAttempt));
  nodes_.seal(3, 1);
  EXPECT_EQ(abort_all(nodes_.decider), 1U);
  const auto text = answer(nodes_.decider, question());
  ASSERT_TRUE(text && *text);
  EXPECT_EQ(decode_manifest(**text)->point.generation, 0U);
  EXPECT_TRUE(place_answer(nodes_.other, question(), **text));
}

TEST_F(InDoubt, NothingThereMeansAborted) {
  nodes_.seal(3, 1);
  const auto text = answer(nodes_.decider, question());
  ASSERT_TRUE(text && *text);
  const auto aborted = decode_manifest(**text);
  ASSERT_TRUE(aborted);
  EXPECT_EQ(aborted->outcome, Outcome::kAborted);
  EXPECT_EQ(aborted->point, (Point{1, 3, 3, 3}));
  EXPECT_TRUE(place_answer(nodes_.other, question(), **text));
}

TEST_F(InDoubt, BeingDeletedThereMeansAborted) {
  nodes_.seal(3);
  nodes_.decider.plant(attempt_dir_name(kAttempt) + "/" + std::string(kDeletedManifestFile),
                       nodes_.committed_text(3));
  const auto failing = nodes_.decider.clone();
  failing->fail_at(failing->operation_count(), EIO);
  EXPECT_EQ(code_of(answer(*failing, question())), ErrorCode::kIo) << "not durable";
  const auto text = answer(nodes_.decider, question());
  ASSERT_TRUE(text && *text);
  EXPECT_EQ(decode_manifest(**text)->outcome, Outcome::kAborted);
}

TEST_F(InDoubt, NoAnswerComesFromADirectoryThatDoesNotKnow) {
  nodes_.seal(3, 1);
  const Question asked = question();
  EXPECT_EQ(answer(nodes_.other, asked), std::nullopt) << "another node's";
  const auto none = nodes_.decider.clone();
  ASSERT_TRUE(none->remove_file(kNodeFile));
  EXPECT_EQ(answer(*none, asked), std::nullopt) << "an empty disk, or an unmounted one";
  const auto without_claim = nodes_.decider.clone();
  ASSERT_TRUE(without_claim->remove_file(generation_file_name(1)));
  EXPECT_EQ(answer(*without_claim, asked), std::nullopt) << "put back from an older copy";
  Question of_another_run = asked;
  of_another_run.identity.run_id = "0123456789abcdef";
  EXPECT_EQ(answer(nodes_.decider, of_another_run), std::nullopt);
}

TEST_F(InDoubt, NoAnswerComesIfAnotherNodeHasThatClaimNow) {
  nodes_.seal(3, 1);
  const Question asked = question();
  GenerationRecord winner = *read_run(nodes_.decider)->claims.at(0).record;
  winner.node = 0xc3;
  nodes_.decider.plant(generation_file_name(1), encode_generation(winner));
  EXPECT_EQ(answer(nodes_.decider, asked), std::nullopt);
}

TEST_F(InDoubt, NoAnswerComesWhileTheAttemptIsUndecidedOrItsManifestBad) {
  nodes_.seal(3);
  EXPECT_EQ(answer(nodes_.decider, question()), std::nullopt);
  nodes_.commit_on_decider(3);
  ASSERT_TRUE(nodes_.decider.flip_bit(TwoNodes::manifest_of(3), 800));
  EXPECT_EQ(answer(nodes_.decider, question()), std::nullopt);
}

TEST_F(InDoubt, ADiskThatFailsGivesNoOutcomeThatIsNotThere) {
  nodes_.seal(3);
  nodes_.commit_on_decider(3);
  const auto counted = nodes_.decider.clone();
  ASSERT_TRUE(answer(*counted, question()));
  for (std::size_t index = 0; index < counted->read_count(); ++index) {
    const auto disk = nodes_.decider.clone();
    disk->fail_read_at(index, EIO);
    const auto text = answer(*disk, question());
    if (!text || !*text) continue;
    EXPECT_EQ(**text, nodes_.committed_text(3)) << index;
  }
  nodes_.decider.fail_at(nodes_.decider.operation_count(), EIO);
  EXPECT_EQ(code_of(answer(nodes_.decider, question())), ErrorCode::kIo) << "not durable";
}

// Its process died between the rename and the sync.
TEST_F(InDoubt, AnOutcomeIsDurableBeforeItIsAnswered) {
  nodes_.seal(3);
  const std::string written = attempt_dir_name(kAttempt) + "/manifest.0.tmp";
  nodes_.decider.plant(written, nodes_.committed_text(3));
  ASSERT_TRUE(nodes_.decider.rename_no_replace(written, TwoNodes::manifest_of(3)));
  EXPECT_GT(nodes_.decider.pending_count(), 0U);
  ASSERT_TRUE(answer(nodes_.decider, question()));
  EXPECT_EQ(nodes_.decider.pending_count(), 0U);
}

TEST_F(InDoubt, ADeletionIsDurableBeforeItIsAnswered) {
  nodes_.seal(3);
  nodes_.commit_on_decider(3);
  const std::string deleted = attempt_dir_name(kAttempt) + "/" + std::string(kDeletedManifestFile);
  ASSERT_TRUE(nodes_.decider.rename_no_replace(TwoNodes::manifest_of(3), deleted));
  ASSERT_TRUE(answer(nodes_.decider, question()));
  EXPECT_EQ(nodes_.decider.pending_count(), 0U) << "begun";
  for (const std::string& name : nodes_.decider.list_all()) {
    if (name.starts_with("step-") && !name.ends_with("/")) {
      ASSERT_TRUE(nodes_.decider.remove_file(name));
    }
  }
  ASSERT_TRUE(nodes_.decider.remove_dir(attempt_dir_name(kAttempt)));
  ASSERT_TRUE(answer(nodes_.decider, question()));
  for (const auto& image : nodes_.decider.crash_images(kImagesMax, 1)) {
    EXPECT_TRUE(read_run(*image)->attempts.empty()) << "ended; " << image->label();
  }
}

TEST_F(InDoubt, AnAnswerThatDoesNotFitIsNotPlaced) {
  nodes_.seal(3);
  const Question asked = question();
  std::string text = nodes_.committed_text(3);
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  EXPECT_EQ(code_of(place_answer(nodes_.other, asked, text)), ErrorCode::kCorrupt);
  const auto refuses = [&](const std::function<void(Manifest&)>& change, ErrorCode code) {
    Manifest manifest = decode_manifest(nodes_.committed_text(3)).value();
    change(manifest);
    EXPECT_EQ(code_of(place_answer(nodes_.other, asked, encode_manifest(manifest))), code);
  };
  using enum ErrorCode;
  refuses([](Manifest& one) { one.run_id = "0123456789abcdef"; }, kMismatch);
  refuses([](Manifest& one) { one.point.generation = 2; }, kMismatch);
  refuses([](Manifest& one) { one.point.attempt_id = 4; }, kMismatch);
  refuses([](Manifest& one) { one.world_size = 3; }, kMismatch);
  refuses([](Manifest& one) { one.files.pop_back(); }, kMismatch);
  refuses([](Manifest& one) { one.files.push_back({sealed_file_name({1, 2, 0, 2}), 1, 1}); },
          kIncomplete);
  refuses([](Manifest& one) { one.files.back().bytes += 1; }, kMismatch);
  refuses([](Manifest& one) { one.files.back().header_crc += 1; }, kMismatch);
  refuses(
      [](Manifest& one) {
        one.outcome = Outcome::kAborted;
        one.files.clear();
        one.point.attempt_id = 4;
      },
      kMismatch);
  EXPECT_TRUE(state(nodes_.other).doubt);
  EXPECT_TRUE(place_answer(nodes_.other, asked, nodes_.committed_text(3)));
}

TEST_F(InDoubt, AnAnswerIsNotPlacedIfAFileIsDamagedOrGone) {
  nodes_.seal(3);
  const Question asked = question();
  const std::string path =
      attempt_dir_name(kAttempt) + "/" + sealed_file_name(nodes_.identity(3, 1).part);
  const auto damaged = nodes_.other.clone();
  ASSERT_TRUE(damaged->flip_bit(path, 800));
  const auto refused = place_answer(*damaged, asked, nodes_.committed_text(3));
  ASSERT_EQ(code_of(refused), ErrorCode::kCorrupt);
  EXPECT_TRUE(refused.error().message().contains(path)) << refused.error().message();
  const auto gone = nodes_.other.clone();
  ASSERT_TRUE(gone->remove_file(path));
  EXPECT_EQ(code_of(place_answer(*gone, asked, nodes_.committed_text(3))), ErrorCode::kIncomplete);
}

TEST_F(InDoubt, TheFirstOutcomeStands) {
  nodes_.seal(3);
  const Question asked = question();
  ASSERT_TRUE(abort_attempt(nodes_.other, aborted_outcome(asked.identity)));
  EXPECT_EQ(code_of(place_answer(nodes_.other, asked, nodes_.committed_text(3))),
            ErrorCode::kMismatch);
  EXPECT_EQ(state(nodes_.other).manifest->outcome, Outcome::kAborted);
}

TEST_F(InDoubt, APowerCutLeavesTheAnswerOrTheDoubt) {
  nodes_.seal(3);
  const Question asked = question();
  const std::string text = nodes_.committed_text(3);
  const auto counted = nodes_.other.clone();
  ASSERT_TRUE(place_answer(*counted, asked, text));
  for (std::size_t index = nodes_.other.operation_count(); index <= counted->operation_count();
       ++index) {
    const auto disk = nodes_.other.clone();
    disk->crash_at(index);
    const bool is_placed = place_answer(*disk, asked, text).has_value();
    for (const auto& image : disk->crash_images(kImagesMax, index)) {
      const AttemptState found = state(*image);
      EXPECT_FALSE(found.fault) << index << ", " << image->label();
      EXPECT_TRUE(found.committed() || (!is_placed && found.doubt)) << index << image->label();
      EXPECT_TRUE(place_answer(*image, asked, text)) << index << ", " << image->label();
    }
  }
}

}  // namespace
}  // namespace deepfreeze::in_doubt_test
