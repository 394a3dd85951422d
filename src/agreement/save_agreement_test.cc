#include "agreement/save_agreement.h"

#include <gtest/gtest.h>

#include <atomic>

#include "agreement/given_tensors.h"
#include "agreement/job_ranks.h"
#include "agreement/spec_message.h"
#include "base/message.h"
#include "base/try.h"
#include "plan/layouts.h"
#include "ranks/collective.h"
#include "support/code_of.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

using Group = std::shared_ptr<RankGroup>;
using Change = std::function<void(SaveVote&)>;

SaveVote vote() { return {.run_id = "0123456789abcdef", .step = 7}; }

Identity some_identity() {
  return {.run_id = "0123456789abcdef", .attempt_id = 5, .generation = 2, .step = 7};
}

using Made = Result<std::optional<Identity>>;

// The verdict that each of three ranks hears if the last of them votes otherwise.
std::vector<Result<SaveVerdict>> verdicts(const Change& change,
                                          const Made& identity = some_identity()) {
  std::vector<Result<SaveVerdict>> heard(3);
  ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
    SaveVote own = vote();
    if (rank == 2) change(own);
    heard[rank] = agree_on_save(*group, own, [&] { return identity; });
  });
  return heard;
}

void expect_all_hear(const std::vector<Result<SaveVerdict>>& heard, ErrorCode code,
                     const std::string& text) {
  for (const auto& verdict : heard) {
    ASSERT_EQ(code_of(verdict), code);
    EXPECT_TRUE(verdict.error().message().contains(text)) << verdict.error().message();
  }
}

TEST(SaveAgreement, AllSaveUnderOneIdentityEachAsItself) {
  const auto heard = verdicts([](SaveVote&) {});
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(heard[rank]) << heard[rank].error().message();
    EXPECT_FALSE(heard[rank]->skip || heard[rank]->share_anew);
    Identity wanted = some_identity();
    wanted.part = {.rank = rank, .world_size = 3, .file = 0, .file_count = 1};
    EXPECT_EQ(heard[rank]->identity, wanted);
  }
}

TEST(SaveAgreement, WhereOneIsBusyAllSkip) {
  for (const auto& verdict : verdicts([](SaveVote& own) { own.is_busy = true; })) {
    EXPECT_TRUE(verdict.value().skip);
  }
}

TEST(SaveAgreement, WhereOneHasOtherTensorsAllShareAnew) {
  for (const auto& verdict : verdicts([](SaveVote& own) { own.has_shares = false; })) {
    EXPECT_TRUE(verdict.value().share_anew);
  }
}

TEST(SaveAgreement, WhoIsNotReadyIsNamedToAll) {
  expect_all_hear(verdicts([](SaveVote& own) {
                    own.ready = fail(ErrorCode::kEncode, "a lambda can't be stored");
                    own.step = 0;
                  }),
                  ErrorCode::kEncode, "rank 2: a lambda can't be stored");
}

TEST(SaveAgreement, RanksThatSaveDifferentThingsAreAMismatch) {
  expect_all_hear(verdicts([](SaveVote& own) { own.step = 8; }), ErrorCode::kMismatch,
                  "rank 2 saves step 8, rank 0 step 7");
  expect_all_hear(verdicts([](SaveVote& own) { own.run_id = "fedcba9876543210"; }),
                  ErrorCode::kMismatch, "rank 2 saves into run fedcba9876543210");
  expect_all_hear(verdicts([](SaveVote& own) { own.is_save = false; }), ErrorCode::kMismatch,
                  "rank 2 prewarms");
}

TEST(SaveAgreement, WhatKeepsRank0FromAnIdentityIsToldToAll) {
  expect_all_hear(verdicts([](SaveVote&) {}, fail(ErrorCode::kFenced, "taken over")),
                  ErrorCode::kFenced, "rank 0: taken over");
}

TEST(SaveAgreement, AClaimThatIsDueIsEveryRanksToMake) {
  for (const auto& verdict : verdicts([](SaveVote&) {}, std::nullopt)) {
    ASSERT_TRUE(verdict);
    EXPECT_TRUE(verdict->claim);
    EXPECT_FALSE(verdict->skip);
  }
  for (const auto& verdict : verdicts([](SaveVote&) {})) EXPECT_FALSE(verdict->claim);
}

TEST(SaveAgreement, APrewarmNeedsNoIdentity) {
  std::atomic<int> made = 0;
  ThreadRanks(2).run([&](std::uint32_t, const Group& group) {
    SaveVote own = vote();
    own.is_save = false;
    EXPECT_TRUE(agree_on_save(*group, own, [&]() -> Result<std::optional<Identity>> {
      ++made;
      return some_identity();
    }));
  });
  EXPECT_EQ(made, 0);
}

TEST(ShareOut, EachRankLearnsItsPartOfWhatAllHave) {
  constexpr std::uint64_t kRows = 4096;  // of 4 KiB: enough to be cut
  std::vector<std::vector<Share>> shares(2);
  ThreadRanks(2).run([&](std::uint32_t rank, const Group& group) {
    const SpecTable table = {whole("w", {kRows, 1024}),
                             whole("@rank0000" + std::to_string(rank) + ".rng", {16})};
    shares[rank] = share_out(*group, {"node", table, {1, 2 + rank}}).value().shares;
  });
  ASSERT_EQ(shares[0].size(), 2U);
  ASSERT_EQ(shares[1].size(), 2U);
  EXPECT_EQ(shares[0][0].rows + shares[1][0].rows, kRows);
  EXPECT_NEAR(static_cast<double>(shares[0][0].rows), kRows / 2.0, 300.0);
  EXPECT_EQ(shares[1][0].first_row, shares[0][0].rows);
}

TEST(ShareOut, RanksOfOneNodeComeOneAfterTheOther) {
  std::vector<std::vector<Share>> shares(4);
  ThreadRanks(4).run([&](std::uint32_t rank, const Group& group) {
    const RankTensors own{rank % 2 != 0 ? "b" : "a", {whole("w", {4096, 1024})}, {1}};
    shares[rank] = share_out(*group, own).value().shares;
  });
  EXPECT_LT(shares[0][0].first_row, shares[2][0].first_row);
  EXPECT_LT(shares[2][0].first_row, shares[1][0].first_row);
}

TEST(ShareOut, TablesThatContradictEachOtherAreEveryRanksError) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    const DType dtype = rank == 0 ? DType::kF32 : DType::kF64;
    const auto shares = share_out(*group, {"node", {whole("w", {8}, dtype)}, {1}});
    ASSERT_EQ(code_of(shares), ErrorCode::kMismatch);
    EXPECT_TRUE(shares.error().message().contains("w")) << shares.error().message();
  });
}

// `given` has the checksums of each rank's tensors.
void expect_mismatch(const std::vector<RankTensors>& given, const std::string& text) {
  ThreadRanks(static_cast<std::uint32_t>(given.size()))
      .run([&](std::uint32_t rank, const Group& group) {
        const auto shares = share_out(*group, given[rank]);
        ASSERT_EQ(code_of(shares), ErrorCode::kMismatch);
        EXPECT_TRUE(shares.error().message().contains(text)) << shares.error().message();
      });
}

TEST(ShareOut, ReplicasThatDifferAreEveryRanksError) {
  const SpecTable table = {whole("w", {8}), whole("b", {2})};
  expect_mismatch({{"n", table, {1, 7}}, {"n", table, {1, 7}}, {"n", table, {1, 8}}},
                  "tensor b: rank 0 and rank 2");
}

TEST(ShareOut, ReplicasThatDifferAreFoundInDifferentTablesToo) {
  expect_mismatch({{"n", {rows("w", {8, 2}, 0, 4), whole("norm", {2})}, {1, 7}},
                   {"n", {rows("w", {8, 2}, 4, 8), whole("norm", {2})}, {2, 8}}},
                  "tensor norm: rank 0 and rank 1");
}

TEST(ShareOut, BoxesWithoutElementsAreNoReplicas) {
  ThreadRanks(3).run([&](std::uint32_t rank, const Group& group) {
    const auto shares = share_out(*group, {"n", {shard("w", {2, 2}, rank, 3)}, {rank}});
    EXPECT_TRUE(shares) << shares.error().message();
  });
}

// A device that dies while it is read, say.
TEST(ShareOut, WhoHasNoChecksumsIsNamedToAllWithTheReason) {
  ThreadRanks(3).run([](std::uint32_t rank, const Group& group) {
    RankTensors own{"n", {whole("w", {8})}, {1}};
    if (rank == 1) {
      own.crcs.clear();
      own.ready = fail(ErrorCode::kIo, "CUDA device 1: gone");
    }
    const auto shares = share_out(*group, own);
    ASSERT_EQ(code_of(shares), ErrorCode::kIo);
    EXPECT_TRUE(shares.error().message().contains("rank 1: CUDA device 1: gone"))
        << shares.error().message();
  });
}

TEST(ShareOut, AChecksumForEachTensorIsDemanded) {
  ThreadRanks(2).run([&](std::uint32_t, const Group& group) {
    EXPECT_EQ(code_of(share_out(*group, {"n", {whole("w", {8})}, {}})), ErrorCode::kInternal);
  });
}

TEST(SpecMessage, IsReadAsItWasWritten) {
  const SpecTable table = {
      whole("scalar", {}, DType::kI64),
      rows("w", {7, 3}, 2, 5),
      {.key = "c", .dtype = DType::kF32, .shape = {2, 2}, .logical_dtype = "complex64"}};
  EXPECT_EQ(decode_specs(encode_specs(table)).value(), table);
  EXPECT_EQ(decode_specs(encode_specs({})).value(), SpecTable{});
}

TEST(SpecMessage, CutAnywhereIsAnError) {
  const std::string bytes = encode_specs({whole("scalar", {}), rows("w", {7, 3}, 2, 5)});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_specs(bytes.substr(0, size))) << size;
  }
}

TEST(SpecMessage, WhatNoTableHoldsIsRefused) {
  SpecTable table = {whole("w", {2})};
  table[0].dtype = DType{99};
  EXPECT_EQ(code_of(decode_specs(encode_specs(table))), ErrorCode::kInternal);
  table = {rows("w", {7, 3}, 2, 5)};
  table[0].box->extent[0] = 70;
  EXPECT_FALSE(decode_specs(encode_specs(table)));
}

// Another version of DeepFreeze might send more than this one reads.
TEST(ShareOut, AnAnswerThatGoesOnIsRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    const RankTensors own{"n", {whole("w", {8})}, {1}};
    if (rank == 1) {
      EXPECT_EQ(code_of(share_out(*group, own)), ErrorCode::kInternal);
      return;
    }
    const Answer no_duties_and_more = [](const std::vector<std::string>& given) {
      MessageWriter message;
      message.number(std::uint64_t{0}).number(std::uint32_t{0}).number(std::uint32_t{1});
      message.number(std::uint64_t{0}).flag(true);
      return std::vector<std::string>(given.size(), message.take());
    };
    EXPECT_TRUE(ask_rank0(*group, "share out", GivenTensors::encode(own), no_duties_and_more));
  });
}

TEST(SaveAgreement, AVoteThatGoesOnIsRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    const SaveVote own = vote();
    if (rank == 0) {
      EXPECT_EQ(code_of(agree_on_save(*group, own, some_identity)), ErrorCode::kInternal);
      return;
    }
    MessageWriter message;
    message.text(own.run_id).number(own.step).flag(true).flag(true).flag(false).status({});
    const std::string more = message.flag(true).take();
    EXPECT_EQ(code_of(ask_rank0(*group, "save", more, nullptr)), ErrorCode::kInternal);
  });
}

TEST(SaveAgreement, AVerdictThatGoesOnIsRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    if (rank == 1) {
      EXPECT_EQ(code_of(agree_on_save(*group, vote(), some_identity)), ErrorCode::kInternal);
      return;
    }
    const Answer verdict_and_more = [](const std::vector<std::string>& given) {
      MessageWriter message;
      message.flag(false).flag(false).text("0123456789abcdef");
      for (int number = 0; number < 4; ++number) message.number(std::uint64_t{1});
      return std::vector<std::string>(given.size(), message.flag(true).take());
    };
    EXPECT_TRUE(ask_rank0(*group, "save", "", verdict_and_more));
  });
}

TEST(ShareOut, ATableThatGoesOnIsRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    const RankTensors own{"n", {whole("w", {8})}, {1}};
    if (rank == 0) {
      EXPECT_EQ(code_of(share_out(*group, own)), ErrorCode::kInternal);
      return;
    }
    const std::string more = GivenTensors::encode(own) + "x";
    EXPECT_EQ(code_of(ask_rank0(*group, "share out", more, nullptr)), ErrorCode::kInternal);
  });
}

TEST(JobRanks, PointsOfRank0ThatGoOnAreRefused) {
  ThreadRanks(2).run([](std::uint32_t rank, const Group& group) {
    if (rank == 1) {
      auto ranks = JobRanks::join(group);
      EXPECT_EQ(code_of(ranks->points_of_rank0({})), ErrorCode::kInternal);
      return;
    }
    MessageWriter message;
    message.number(std::uint64_t{0}).flag(true);
    EXPECT_TRUE(share_rank0s(*group, "candidates", message.take()));
  });
}

}  // namespace
}  // namespace deepfreeze
