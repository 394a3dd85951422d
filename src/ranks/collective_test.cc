#include "ranks/collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <tuple>

#include "base/message.h"
#include "base/try.h"
#include "ranks/ranks_in_step.h"
#include "support/code_of.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using Group = std::shared_ptr<RankGroup>;

TEST(Collective, Rank0AnswersEachRank) {
  ThreadRanks(3).run([](std::uint32_t rank, const Group& group) {
    const auto answer =
        ask_rank0(*group, "x", std::to_string(rank), [](const std::vector<std::string>& given) {
          return Result<std::vector<std::string>>({given[2], given[0], given[1]});
        });
    ASSERT_TRUE(answer);
    EXPECT_EQ(*answer, std::to_string((rank + 2) % 3));
  });
}

TEST(Collective, AnErrorOfTheAnswerIsEveryRanks) {
  ThreadRanks(2).run([](std::uint32_t, const Group& group) {
    const auto answer = ask_rank0(
        *group, "x", "", [](const std::vector<std::string>&) -> Result<std::vector<std::string>> {
          return fail(ErrorCode::kMismatch, "they differ");
        });
    ASSERT_EQ(code_of(answer), ErrorCode::kMismatch);
    EXPECT_EQ(answer.error().message(), "they differ");
  });
}

TEST(Collective, AllAgreeWhereAllAreWell) {
  EXPECT_TRUE(agree(nullptr, "", {}));
  ThreadRanks(3).run(
      [](std::uint32_t, const Group& group) { EXPECT_TRUE(agree(group.get(), "x", {})); });
}

TEST(Collective, TheFirstErrorIsTheSameOnAllRanks) {
  ThreadRanks(4).run([](std::uint32_t rank, const Group& group) {
    Status own;
    if (rank == 1) own = fail(ErrorCode::kCorrupt, "block 7", 5);
    if (rank == 3) own = fail(ErrorCode::kIo, "gone");
    const Status agreed = agree(group.get(), "x", own);
    ASSERT_EQ(code_of(agreed), ErrorCode::kCorrupt);
    EXPECT_EQ(agreed.error().message(), "rank 1: block 7");
    EXPECT_EQ(agreed.error().os_errno(), 5);
  });
}

TEST(Collective, WhatRank0HasOrItsErrorIsShared) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    EXPECT_EQ(share_rank0s(*group, "x", rank == 0 ? "all" : "none").value(), "all");
    const auto failed = share_rank0s(*group, "x", fail(ErrorCode::kFenced, "taken over"));
    EXPECT_EQ(code_of(failed), ErrorCode::kFenced);
  });
}

TEST(Collective, RanksInDifferentCallsOrAtDifferentSubjectsAreAMismatch) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    const Status at = agree(group.get(), rank == 0 ? "step 1" : "step 2", {});
    ASSERT_EQ(code_of(at), ErrorCode::kMismatch);
    EXPECT_EQ(at.error().message(), "rank 1 is at \"step 2\", rank 0 at \"step 1\"");
    const auto call = share_rank0s(*group, rank == 0 ? "a" : "b", "");
    ASSERT_EQ(code_of(call), ErrorCode::kMismatch);
    EXPECT_TRUE(call.error().message().contains("ranks make different calls"));
  });
}

TEST(Collective, MemoryThatIsRefusedToTheAnswerIsEveryRanksError) {
  ThreadRanks(2).run([](std::uint32_t, const Group& group) {
    const auto answer = ask_rank0(
        *group, "x", "", [](const std::vector<std::string>&) -> Result<std::vector<std::string>> {
          throw std::bad_alloc();
        });
    EXPECT_EQ(code_of(answer), ErrorCode::kNoSpace);
    EXPECT_TRUE(agree(group.get(), "x", {})) << "still in step";
  });
}

// Another version of DeepFreeze might send more than this one reads.
TEST(Collective, AMessageThatGoesOnIsRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    if (rank == 0) {
      const Answer none = [](const std::vector<std::string>& given) { return given; };
      EXPECT_EQ(code_of(ask_rank0(*group, "x", "", none)), ErrorCode::kInternal);
      EXPECT_EQ(code_of(agree(group.get(), "x", {})), ErrorCode::kInternal);
      return;
    }
    MessageWriter question, vote, call;
    std::ignore = group->gather(question.text("x").text("own").flag(true).take());
    std::ignore = group->scatter({});
    const std::string longer = vote.status({}).text("x").flag(true).take();
    std::ignore = group->gather(call.text("agree").text(longer).take());
    std::ignore = group->scatter({});
  });
}

TEST(Collective, AReplyThatGoesOnIsRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    if (rank == 1) {
      EXPECT_EQ(code_of(agree(group.get(), "x", {})), ErrorCode::kInternal);
      return;
    }
    MessageWriter reply;
    std::ignore = group->gather("");
    std::ignore = group->scatter({"", reply.status({}).text("").flag(true).take()});
  });
}

TEST(RanksInStep, ALostRankIsAnErrorInTimeAndForGood) {
  const ThreadRanks ranks(3, std::chrono::milliseconds(50));
  std::atomic<int> refused = 0;
  ranks.run([&](std::uint32_t rank, const Group& group) {
    if (rank == 2) return;  // never comes
    RanksInStep in_step(group);
    EXPECT_EQ(code_of(agree(&in_step, "x", {})), ErrorCode::kTimeout);
    const Status again = agree(&in_step, "x", {});
    ASSERT_EQ(code_of(again), ErrorCode::kUnsupported);
    EXPECT_TRUE(again.error().message().contains("not all ranks came"));
    ++refused;
  });
  EXPECT_EQ(refused, 2);
}

// Says that it has more ranks than come.
class ShortGroup final : public RankGroup {
 public:
  [[nodiscard]] std::uint32_t rank() const override { return 0; }
  [[nodiscard]] std::uint32_t world_size() const override { return 2; }
  [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
    return std::vector{std::move(bytes)};
  }
  [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
    return bytes.front();
  }
};

TEST(RanksInStep, AGroupThatGathersTooLittleIsFoundOut) {
  RanksInStep in_step(std::make_shared<ShortGroup>());
  EXPECT_EQ(code_of(agree(&in_step, "x", {})), ErrorCode::kInternal);
}

// Its ranks can be asked, and never answered.
class DeafGroup final : public RankGroup {
 public:
  [[nodiscard]] std::uint32_t rank() const override { return 1; }
  [[nodiscard]] std::uint32_t world_size() const override { return 2; }
  [[nodiscard]] Result<std::vector<std::string>> gather(std::string) override {
    return std::vector<std::string>();
  }
  [[nodiscard]] Result<std::string> scatter(std::vector<std::string>) override {
    ++scatters;
    return fail(ErrorCode::kTimeout, "no answer");
  }

  int scatters = 0;
};

TEST(RanksInStep, NoAnswerIsAnErrorForGoodToo) {
  const auto group = std::make_shared<DeafGroup>();
  RanksInStep in_step(group);
  const auto first = in_step.scatter({});
  ASSERT_EQ(code_of(first), ErrorCode::kTimeout);
  EXPECT_TRUE(first.error().message().contains("rank 1 of 2")) << first.error().message();
  EXPECT_EQ(code_of(in_step.scatter({})), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(in_step.gather("")), ErrorCode::kUnsupported);
  EXPECT_EQ(group->scatters, 1) << "who is out of step asks nobody";
}

}  // namespace
}  // namespace deepfreeze
