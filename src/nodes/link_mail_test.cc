// Two leaders whose letters go over real endpoints.
#include "nodes/link_mail.h"

#include "link/link_fixture.h"
#include "support/code_of.h"

namespace deepfreeze::link_test {
namespace {

constexpr LinkAttempt kAttempt{.step = 7, .attempt_id = 9};

// The next letter that is more than news of a link.
Result<Letter> next_letter(Mail& mail) {
  while (true) {
    auto letter = mail.take(kLong);
    if (!letter || letter->message) return letter;
  }
}

class LinkMails : public LinkTest {
 protected:
  Node node_0_{0};
  Node node_2_{2};
  std::unique_ptr<Endpoint> zero_ = node_0_.start({node_2_.awaited()});
  std::unique_ptr<Endpoint> two_ = node_2_.start({node_0_.dialed()});
  LinkMail mail_0_{*zero_};
  LinkMail mail_2_{*two_};
};

TEST_F(LinkMails, CarryReportsAndAnswers) {
  ASSERT_TRUE(await_up(*two_, 0));
  ASSERT_TRUE(mail_2_.send(0, LinkSealed{.attempt = kAttempt, .files = {{"file", 5}}}));
  const auto report = next_letter(mail_0_);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->rank, 2U);
  const auto& sealed = std::get<LinkSealed>(*report->message);
  EXPECT_EQ(sealed.attempt, kAttempt);
  EXPECT_EQ(sealed.files, (std::vector<LinkSealed::File>{{"file", 5}}));
  ASSERT_TRUE(mail_0_.send(2, LinkDecided{.attempt = kAttempt, .manifest = "record"}));
  const auto answer = next_letter(mail_2_);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(std::get<LinkDecided>(*answer->message).manifest, "record");
}

TEST_F(LinkMails, SayThatLettersMayHaveBeenLost) {
  const auto up = mail_2_.take(kLong);
  ASSERT_TRUE(up) << up.error().message();
  EXPECT_EQ(up->rank, 0U);
  EXPECT_FALSE(up->message.has_value());
}

TEST_F(LinkMails, DropMessagesThatAreNoLetters) {
  ASSERT_TRUE(await_up(*two_, 0));
  ASSERT_TRUE(two_->send(0, LinkRead{.number = 1, .attempt = kAttempt, .file = "file"}));
  ASSERT_TRUE(two_->send(0, bytes_message(1, "bytes")));
  ASSERT_TRUE(mail_2_.send(0, LinkAsk{kAttempt}));
  const auto letter = next_letter(mail_0_);
  ASSERT_TRUE(letter) << letter.error().message();
  EXPECT_TRUE(std::holds_alternative<LinkAsk>(*letter->message));
}

TEST_F(LinkMails, TellWhatCantBeSentOrTaken) {
  ASSERT_TRUE(await_up(*two_, 0));
  std::ignore = mail_2_.take(kLong);  // the news that it is up
  EXPECT_EQ(code_of(mail_2_.take(std::chrono::milliseconds(1))), ErrorCode::kTimeout);
  zero_->close();
  EXPECT_EQ(code_of(mail_0_.send(2, LinkAsk{kAttempt})), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(mail_0_.take(kLong)), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deepfreeze::link_test
