#include "agreement/save_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement/given_tensors.h"
#include "base/message.h"
#include "base/try.h"
#include "plan/share_plan.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

std::string encode(const SaveVote& vote) {
  MessageWriter message;
  message.text(vote.run_id).number(vote.step).flag(vote.is_save).flag(vote.has_shares);
  return message.flag(vote.is_busy).status(vote.ready).take();
}

Result<SaveVote> decode_vote(std::string_view bytes) {
  MessageReader message(bytes);
  SaveVote vote;
  vote.run_id = message.text();
  vote.step = message.number<std::uint64_t>();
  vote.is_save = message.flag();
  vote.has_shares = message.flag();
  vote.is_busy = message.flag();
  vote.ready = message.status();
  DF_TRY_VOID(message.end());
  return vote;
}

std::string encode(const SaveVerdict& verdict) {
  MessageWriter message;
  const Identity& identity = verdict.identity;
  message.flag(verdict.skip).flag(verdict.claim).flag(verdict.share_anew).text(identity.run_id);
  message.number(identity.attempt_id).number(identity.generation).number(identity.step);
  return message.number(identity.save_index).take();
}

Result<SaveVerdict> decode_verdict(std::string_view bytes) {
  MessageReader message(bytes);
  SaveVerdict verdict;
  verdict.skip = message.flag();
  verdict.claim = message.flag();
  verdict.share_anew = message.flag();
  verdict.identity.run_id = message.text();
  verdict.identity.attempt_id = message.number<std::uint64_t>();
  verdict.identity.generation = message.number<std::uint64_t>();
  verdict.identity.step = message.number<std::uint64_t>();
  verdict.identity.save_index = message.number<std::uint64_t>();
  DF_TRY_VOID(message.end());
  return verdict;
}

Status check_same(const SaveVote& vote, std::size_t rank, const SaveVote& first) {
  if (vote.is_save != first.is_save) {
    return fail(ErrorCode::kMismatch,
                fmt::format("rank {} prewarms, rank 0 saves, or the other way round", rank));
  }
  if (vote.step != first.step) {
    return fail(ErrorCode::kMismatch,
                fmt::format("rank {} saves step {}, rank 0 step {}", rank, vote.step, first.step));
  }
  if (vote.run_id == first.run_id) return {};
  return fail(ErrorCode::kMismatch,
              fmt::format("rank {} saves into run {}, rank 0 into run {}: they need one directory "
                          "that all see, or near=\"node\" if each node has its own",
                          rank, vote.run_id, first.run_id));
}

Result<std::vector<SaveVote>> decode_votes(const std::vector<std::string>& given) {
  std::vector<SaveVote> votes;
  for (const std::string& bytes : given) {
    DF_TRY(SaveVote vote, decode_vote(bytes));
    votes.push_back(std::move(vote));
  }
  return votes;
}

// Rank 0's check. A rank that is not ready comes first: it may not even know the step.
Status check_votes(const std::vector<SaveVote>& votes) {
  for (std::size_t rank = 0; rank < votes.size(); ++rank) {
    const Status& ready = votes[rank].ready;
    if (!ready) return std::unexpected(of_rank(ready.error(), rank));
  }
  for (std::size_t rank = 1; rank < votes.size(); ++rank) {
    DF_TRY_VOID(check_same(votes[rank], rank, votes.front()));
  }
  return {};
}

Result<SaveVerdict> judge(const std::vector<SaveVote>& votes, const MakeIdentity& make_identity) {
  DF_TRY_VOID(check_votes(votes));
  SaveVerdict verdict;
  verdict.skip = std::ranges::any_of(votes, &SaveVote::is_busy);
  if (verdict.skip) return verdict;
  verdict.share_anew = !std::ranges::all_of(votes, &SaveVote::has_shares);
  if (!votes.front().is_save) return verdict;
  auto identity = make_identity();
  if (!identity) return std::unexpected(of_rank(identity.error(), 0));
  verdict.claim = !identity->has_value();
  if (!verdict.claim) verdict.identity = **std::move(identity);
  return verdict;
}

std::string encode(const std::vector<Share>& shares, const AuditPlan& audit) {
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(shares.size()));
  for (const Share& share : shares) {
    message.number(share.tensor).number(share.first_row).number(share.rows);
  }
  message.number(audit.saves).number(audit.groups_of_rank_max);
  message.number(static_cast<std::uint64_t>(audit.groups.size()));
  for (const GroupId group : audit.groups) message.number(group);
  return message.take();
}

Result<RankDuties> decode_duties(std::string_view bytes) {
  constexpr std::size_t kShareBytes = 4 + 8 + 8;
  MessageReader message(bytes);
  RankDuties duties;
  duties.shares.resize(message.count(kShareBytes));
  for (Share& share : duties.shares) {
    share.tensor = message.number<std::uint32_t>();
    share.first_row = message.number<std::uint64_t>();
    share.rows = message.number<std::uint64_t>();
  }
  duties.audit.saves = message.number<std::uint32_t>();
  duties.audit.groups_of_rank_max = message.number<std::uint32_t>();
  duties.audit.groups.resize(message.count(sizeof(GroupId)));
  for (GroupId& group : duties.audit.groups) group = message.number<GroupId>();
  DF_TRY_VOID(message.end());
  return duties;
}

Result<std::vector<std::string>> divide(const std::vector<std::string>& given,
                                        std::uint32_t audit_saves) {
  GivenTensors tensors;
  for (const std::string& bytes : given) DF_TRY_VOID(tensors.add(bytes));
  DF_TRY(SharePlan plan, plan_shares(tensors.ranks()));
  DF_TRY_VOID(tensors.check_replicas());
  std::vector<std::string> answers;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const AuditPlan audit{.saves = audit_saves,
                          .groups_of_rank_max = plan.groups_of_rank_max,
                          .groups = std::move(plan.groups[rank])};
    answers.push_back(encode(plan.ranks[rank], audit));
  }
  return answers;
}

}  // namespace

Result<SaveVerdict> agree_on_save(RankGroup& ranks, const SaveVote& own,
                                  const MakeIdentity& make_identity) {
  DF_TRY(const std::string answer,
         ask_rank0(ranks, "save", encode(own),
                   [&](const std::vector<std::string>& given) -> Result<std::vector<std::string>> {
                     DF_TRY(const std::vector<SaveVote> votes, decode_votes(given));
                     DF_TRY(const SaveVerdict verdict, judge(votes, make_identity));
                     return std::vector<std::string>(given.size(), encode(verdict));
                   }));
  DF_TRY(SaveVerdict verdict, decode_verdict(answer));
  verdict.identity.part.rank = ranks.rank();
  verdict.identity.part.world_size = ranks.world_size();
  return verdict;
}

Result<RankDuties> share_out(RankGroup& ranks, const RankTensors& own) {
  DF_TRY(const std::string answer, ask_rank0(ranks, "share out", GivenTensors::encode(own),
                                             [&](const std::vector<std::string>& given) {
                                               return divide(given, own.audit_saves);
                                             }));
  return decode_duties(answer);
}

}  // namespace deepfreeze
