#include "nodes/ledger.h"

#include "nodes/nodes_fixture.h"

namespace deepfreeze::nodes_test {
namespace {

class Ledgers : public TwoNodes {
 protected:
  LinkPart part(std::uint32_t rank, const LinkAttempt& attempt = {5, 9}) {
    const Identity identity =
        make_identity(run_id_, {1, attempt.step, 5, attempt.attempt_id}, {rank, 4, 0, 1});
    const auto data = make_data(identity, kTestDataBytes);
    const EncodedHeader header = encode_header(make_header(identity, data)).value();
    crcs_[rank] = header.crc;
    return {.attempt = attempt,
            .file = sealed_file_name(identity.part),
            .bytes = header.bytes.size() + data.size(),
            .header = std::string(reinterpret_cast<const char*>(header.bytes.data()),
                                  header.bytes.size())};
  }
  LinkSealed sealed(const LinkAttempt& attempt = {5, 9}) {
    LinkSealed message{.attempt = attempt, .files = {}};
    for (const std::uint32_t rank : {2U, 3U}) {
      message.files.push_back({sealed_file_name(identity(rank).part), crcs_[rank]});
    }
    return message;
  }
  bool note(LinkMessage message, std::uint32_t sender = 2) {
    return zero_.note({.rank = sender, .message = std::move(message)});
  }

  std::map<std::uint32_t, std::uint32_t> crcs_;
  Ledger zero_{two_nodes(), 0};
  Ledger two_{two_nodes(), 2};
};

TEST_F(Ledgers, KnowAReportOnceItIsWholeInAnyOrderAndTwice) {
  const LinkPart second = part(2);
  const LinkPart third = part(3);
  EXPECT_FALSE(note(sealed()));  // before the save has begun here
  EXPECT_FALSE(note(third));
  EXPECT_EQ(zero_.awaited(attempt_), 2U);
  zero_.begin(attempt_);
  EXPECT_FALSE(note(third));
  EXPECT_EQ(zero_.awaited(attempt_), 2U);
  EXPECT_FALSE(note(second));
  EXPECT_EQ(zero_.awaited(attempt_), std::nullopt);
  EXPECT_FALSE(note(second));
  EXPECT_FALSE(note(sealed()));
  EXPECT_EQ(zero_.awaited(attempt_), std::nullopt);
  EXPECT_EQ(zero_.take_parts(attempt_).size(), 2U);
  EXPECT_FALSE(zero_.failure(attempt_).has_value());
}

TEST_F(Ledgers, AwaitAHeaderWithTheChecksumThatWasSealed) {
  zero_.begin(attempt_);
  std::ignore = note(part(2));
  std::ignore = note(part(3));
  LinkSealed message = sealed();
  ++message.files.back().header_crc;
  std::ignore = note(message);
  EXPECT_EQ(zero_.awaited(attempt_), 2U);
}

TEST_F(Ledgers, TakeNoReportThatLacksARank) {
  zero_.begin(attempt_);
  std::ignore = note(part(2));
  LinkSealed message = sealed();
  message.files.pop_back();
  std::ignore = note(message);
  EXPECT_EQ(zero_.awaited(attempt_), 2U);
  ASSERT_TRUE(zero_.failure(attempt_).has_value());
  EXPECT_EQ(zero_.failure(attempt_)->code(), ErrorCode::kIncomplete);
}

TEST_F(Ledgers, TakeNoHeaderThatIsDamagedOrOfAnotherNode) {
  LinkPart of_another_job = part(2);
  of_another_job.file = sealed_file_name({2, 8, 0, 1});
  LinkPart unsealed = part(2);
  unsealed.file = "manifest.json";
  for (const LinkPart& bad : {part(1), of_another_job, unsealed}) {
    zero_.begin(attempt_);
    std::ignore = note(bad);
    ASSERT_TRUE(zero_.failure(attempt_)) << bad.file;
    EXPECT_EQ(zero_.failure(attempt_)->code(), ErrorCode::kMismatch) << bad.file;
    zero_.end(attempt_);
  }
  zero_.begin(attempt_);
  LinkPart damaged = part(2);
  damaged.header[100] = static_cast<char>(damaged.header[100] ^ 1);
  std::ignore = note(damaged);
  EXPECT_EQ(zero_.failure(attempt_)->code(), ErrorCode::kCorrupt);
}

TEST_F(Ledgers, HearNobodyButLeaders) {
  zero_.begin(attempt_);
  EXPECT_FALSE(note(LinkAsk{attempt_}, 0)) << "itself";
  EXPECT_FALSE(note(LinkAsk{attempt_}, 3));
  EXPECT_FALSE(note(LinkAsk{attempt_}, 77));
  EXPECT_FALSE(note(LinkFailed{.attempt = attempt_}, 3));
  EXPECT_FALSE(zero_.failure(attempt_).has_value());
  two_.begin(attempt_);
  EXPECT_FALSE(two_.note({.rank = 1, .message = LinkDecided{attempt_, "text"}}));
  EXPECT_FALSE(two_.answer(attempt_).decided.has_value());
  EXPECT_FALSE(two_.note({.rank = 0, .message = LinkDecided{attempt_, "text"}}));
  EXPECT_EQ(two_.answer(attempt_).decided, "text");
}

TEST_F(Ledgers, AnswerLateLettersOfAttemptsThatAreOver) {
  zero_.begin(attempt_);
  zero_.end(attempt_);
  const LinkPart late = part(2);
  EXPECT_FALSE(note(late));
  EXPECT_TRUE(note(sealed()));
  EXPECT_TRUE(note(LinkFailed{.attempt = attempt_}));
  EXPECT_TRUE(note(LinkAsk{attempt_}));
  EXPECT_FALSE(zero_.is_open(attempt_));
}

TEST_F(Ledgers, ForgetTheOldestEarlyAttemptsAndNoneUnderWay) {
  zero_.begin(attempt_);
  for (std::uint64_t id = 100; id <= 100 + kEarlyAttemptsMax; ++id) {
    std::ignore = note(LinkFailed{.attempt = {5, id}});
  }
  EXPECT_FALSE(zero_.is_open({5, 100}));
  EXPECT_TRUE(zero_.is_open({5, 101}));
  EXPECT_TRUE(zero_.is_open(attempt_));
  for (std::uint64_t id = 1000; id <= 1000 + kOverAttemptsMax; ++id) zero_.end({5, id});
  EXPECT_FALSE(note(LinkFailed{.attempt = {5, 1000}}));  // taken for an early one
  EXPECT_TRUE(note(LinkFailed{.attempt = {5, 1001}}));
}

TEST_F(Ledgers, BoundTheHeadersOfAllReports) {
  const LinkPart second = part(2);
  Ledger small(two_nodes(), 0, second.header.size());
  std::ignore = small.note({.rank = 2, .message = second});
  EXPECT_FALSE(small.failure(attempt_).has_value());
  std::ignore = small.note({.rank = 2, .message = part(2, {6, 10})});
  ASSERT_TRUE(small.failure({6, 10}).has_value());
  EXPECT_EQ(small.failure({6, 10})->code(), ErrorCode::kUnsupported);
}

TEST_F(Ledgers, KeepTheFirstFailure) {
  std::ignore = note(LinkFailed{attempt_, Error(ErrorCode::kNoSpace, "full")});
  std::ignore = note(LinkFailed{attempt_, Error(ErrorCode::kIo, "broken")});
  ASSERT_TRUE(zero_.failure(attempt_).has_value());
  EXPECT_EQ(zero_.failure(attempt_)->message(), "the node of rank 2: full");
}

TEST_F(Ledgers, AskAboutABoundedNumberOfDoubts) {
  for (std::uint64_t id = 0; id <= kDoubtsMax; ++id) {
    two_.begin({5, id});
    two_.doubt({5, id});
  }
  const auto doubts = two_.doubts();
  ASSERT_EQ(doubts.size(), kDoubtsMax);
  EXPECT_EQ(doubts.front().attempt_id, 1U);
  two_.end({5, 1});
  EXPECT_EQ(two_.doubts().size(), kDoubtsMax - 1);
}

TEST_F(Ledgers, KeepAnswersThatComeEarlyAndDropBadOnes) {
  std::ignore = two_.note({.rank = 0, .message = LinkDecided{attempt_, "first"}});
  two_.begin(attempt_);
  std::ignore = two_.note({.rank = 0, .message = LinkDecided{attempt_, "second"}});
  EXPECT_EQ(two_.answer(attempt_).decided, "first");
  two_.drop_answer(attempt_);
  EXPECT_FALSE(two_.answer(attempt_).decided.has_value());
  std::ignore = two_.note({.rank = 0, .message = LinkGone{attempt_}});
  EXPECT_TRUE(two_.answer(attempt_).is_gone);
  two_.end(attempt_);
  std::ignore = two_.note({.rank = 0, .message = LinkDecided{attempt_, "late"}});
  EXPECT_FALSE(two_.answer(attempt_).decided.has_value());
}

}  // namespace
}  // namespace deepfreeze::nodes_test
