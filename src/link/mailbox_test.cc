#include "link/mailbox.h"

#include <gtest/gtest.h>

#include <array>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

constexpr std::array<std::uint32_t, 2> kRanks = {3, 5};
constexpr std::chrono::milliseconds kNow{0};

bool may_read(Mailbox& mailbox, std::uint32_t rank) {
  std::array<Mailbox::Traffic, 1> link = {{{.rank = rank, .unsent_bytes = 0}}};
  std::ignore = mailbox.exchange(link);
  return link[0].may_read;
}

// How many messages of so many bytes a rank may send before the thread stops reading.
std::size_t messages_until_full(Mailbox& mailbox, std::uint32_t rank, std::size_t bytes) {
  std::size_t count = 0;
  while (may_read(mailbox, rank)) {
    mailbox.deliver(rank, LinkAsk{}, bytes);
    ++count;
  }
  return count;
}

TEST(Mailbox, BoundsTheMessagesThatWaitByTheirBytes) {
  Mailbox mailbox(kRanks);
  EXPECT_EQ(messages_until_full(mailbox, 3, kInboxBytesMax / 4), 4U);
  EXPECT_TRUE(may_read(mailbox, 5)) << "each link has a bound of its own";
  const auto first = mailbox.take(kNow);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->event.rank, 3U);
  EXPECT_TRUE(first->makes_room);
  EXPECT_TRUE(may_read(mailbox, 3));
  EXPECT_FALSE(mailbox.take(kNow)->makes_room);
}

TEST(Mailbox, BoundsMessagesWithoutBytes) {
  Mailbox mailbox(kRanks);
  EXPECT_LT(messages_until_full(mailbox, 3, 0), 100'000U);
}

TEST(Mailbox, BoundsBytesThatALinkHasNotSent) {
  Mailbox mailbox(kRanks);
  mailbox.note_up(3);
  const std::string most(kOutboxBytesMax, 'x');
  EXPECT_TRUE(mailbox.post(3, most + "x")) << "a message alone may be longer";
  EXPECT_EQ(code_of(mailbox.post(3, "y")), ErrorCode::kBusy);
  EXPECT_EQ(code_of(mailbox.may_post(3, 1)), ErrorCode::kBusy);
  mailbox.note_up(5);
  EXPECT_TRUE(mailbox.post(5, "other"));
  EXPECT_EQ(mailbox.unsent(3).of_rank, kOutboxBytesMax + 1);
  EXPECT_EQ(mailbox.unsent(3).of_all, kOutboxBytesMax + 6);
  EXPECT_EQ(mailbox.unsent(5).of_rank, 5U);
  std::array<Mailbox::Traffic, 1> link = {{{.rank = 3, .unsent_bytes = 0}}};
  std::ignore = mailbox.exchange(link);
  EXPECT_EQ(link[0].outgoing.size(), 1U);
  EXPECT_EQ(code_of(mailbox.post(3, "y")), ErrorCode::kBusy) << "the connection has it now";
  link[0] = {.rank = 3, .unsent_bytes = kOutboxBytesMax - 1};
  std::ignore = mailbox.exchange(link);
  EXPECT_TRUE(mailbox.may_post(3, 1));
  EXPECT_EQ(code_of(mailbox.may_post(3, 2)), ErrorCode::kBusy);
  EXPECT_TRUE(mailbox.post(3, "y"));
  EXPECT_EQ(code_of(mailbox.post(3, "z")), ErrorCode::kBusy);
}

TEST(Mailbox, DropsMessagesForALostLink) {
  Mailbox mailbox(kRanks);
  EXPECT_EQ(code_of(mailbox.post(3, "a")), ErrorCode::kNotFound);
  mailbox.note_up(3);
  ASSERT_TRUE(mailbox.post(3, "a"));
  mailbox.note_lost(3, Error(ErrorCode::kIo, "gone"));
  const Status lost = mailbox.post(3, "b");
  ASSERT_EQ(code_of(lost), ErrorCode::kNotFound);
  EXPECT_TRUE(lost.error().message().contains("no link with rank 3 since 0 s: gone"));
  mailbox.note_up(3);
  ASSERT_TRUE(mailbox.post(3, "c"));
  mailbox.note_up(3);  // another connection in place of that one
  std::array<Mailbox::Traffic, 1> link = {{{.rank = 3, .unsent_bytes = 0}}};
  std::ignore = mailbox.exchange(link);
  EXPECT_TRUE(link[0].outgoing.empty());
}

TEST(Mailbox, TellsChangesThatNobodyHasTakenOnce) {
  Mailbox mailbox(kRanks);
  for (int i = 0; i < 100; ++i) {
    mailbox.note_up(5);
    mailbox.note_lost(5, Error(ErrorCode::kIo, "gone"));
  }
  const auto told = mailbox.take(kNow);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->event.rank, 5U);
  EXPECT_FALSE(told->event.message);
  EXPECT_EQ(code_of(mailbox.take(kNow)), ErrorCode::kTimeout);
  EXPECT_EQ(mailbox.states()[1].count, 100U);
  mailbox.note_up(5);
  EXPECT_TRUE(mailbox.take(kNow)) << "told anew";
}

TEST(Mailbox, KeepsTheTimeOfTheLossWhileTriesFail) {
  Mailbox mailbox(kRanks);
  mailbox.note_up(3);
  mailbox.note_lost(3, Error(ErrorCode::kIo, "gone"));
  const LinkState lost = mailbox.states()[0];
  mailbox.note_failed(3, Error(ErrorCode::kIo, "refused"));
  const LinkState failed = mailbox.states()[0];
  EXPECT_EQ(failed.since, lost.since);
  EXPECT_EQ(failed.error->message(), "refused");
}

TEST(Mailbox, OrdersDialsOnce) {
  Mailbox mailbox(kRanks);
  EXPECT_EQ(code_of(mailbox.want_dialed(4)), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mailbox.want_dialed(5));
  EXPECT_TRUE(mailbox.want_dialed(5));
  EXPECT_EQ(mailbox.exchange({}).dials, std::vector<std::uint32_t>{5});
  EXPECT_TRUE(mailbox.exchange({}).dials.empty());
}

TEST(Mailbox, TakesAndGivesNothingOnceItIsClosed) {
  Mailbox mailbox(kRanks);
  mailbox.note_up(3);
  mailbox.deliver(3, LinkAsk{}, 0);
  EXPECT_FALSE(mailbox.exchange({}).end);
  const auto deadline = Monotonic::now();
  mailbox.close(deadline);
  mailbox.close(deadline + std::chrono::hours(1));
  EXPECT_EQ(mailbox.exchange({}).end, deadline);
  EXPECT_EQ(code_of(mailbox.take(kNow)), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(mailbox.post(3, "a")), ErrorCode::kCancelled);
  EXPECT_EQ(code_of(mailbox.want_dialed(3)), ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deepfreeze
