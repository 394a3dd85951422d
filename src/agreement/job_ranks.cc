#include "agreement/job_ranks.h"

#include <fmt/format.h>

#include "base/host_name.h"
#include "base/message.h"
#include "base/try.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

// Ranks with the same name share a machine. A rank that can't read the name gets one of its own.
std::string node_name(std::uint32_t rank) {
  const std::string host = host_name();
  return host.empty() ? fmt::format("node of rank {}", rank) : host;
}

std::string encode(const std::vector<Point>& points) {
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(points.size()));
  for (const Point& point : points) {
    message.number(point.generation).number(point.step);
    message.number(point.save_index).number(point.attempt_id);
  }
  return message.take();
}

Result<std::vector<Point>> decode_points(std::string_view bytes) {
  constexpr std::size_t kPointBytes = 4 * 8;
  MessageReader message(bytes);
  std::vector<Point> points(message.count(kPointBytes));
  for (Point& point : points) {
    point.generation = message.number<std::uint64_t>();
    point.step = message.number<std::uint64_t>();
    point.save_index = message.number<std::uint64_t>();
    point.attempt_id = message.number<std::uint64_t>();
  }
  DF_TRY_VOID(message.end());
  return points;
}

// Decides as the ranks would together; the error is that of the vote, or of the identity.
Result<SaveVerdict> decide_alone(const SaveVote& own, const MakeIdentity& make_identity) {
  if (!own.ready) return std::unexpected(own.ready.error());
  SaveVerdict verdict;
  verdict.skip = own.is_busy;
  if (own.is_busy || !own.is_save) return verdict;
  DF_TRY(const std::optional<Identity> identity, make_identity());
  verdict.claim = !identity;
  if (identity) verdict.identity = *identity;
  return verdict;
}

}  // namespace

Result<JobRanks> JobRanks::join(std::shared_ptr<RankGroup> group) {
  if (!group || group->world_size() == 1) return JobRanks(nullptr);
  if (group->rank() < group->world_size()) {
    return JobRanks(std::make_shared<RanksInStep>(std::move(group)));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("ranks: rank {} of {}", group->rank(), group->world_size()));
}

Result<SaveVerdict> JobRanks::agree_on_save(const SaveVote& own,
                                            const MakeIdentity& make_identity) {
  if (!group_) return decide_alone(own, make_identity);
  return deepfreeze::agree_on_save(*group_, own, make_identity);
}

Status JobRanks::share_out(Result<std::vector<std::uint32_t>> crcs, std::uint32_t audit_saves,
                           SavePlanner& planner) {
  RankTensors own{.node = node_name(group_->rank()),
                  .specs = planner.specs(),
                  .crcs = {},
                  .audit_saves = audit_saves};
  if (crcs) {
    own.crcs = *std::move(crcs);
  } else {
    own.ready = std::unexpected(crcs.error());
  }
  DF_TRY(const RankDuties duties, deepfreeze::share_out(*group_, own));
  return planner.take_shares(duties.shares, duties.audit);
}

Status JobRanks::agree(std::string_view subject, const Status& own) {
  return deepfreeze::agree(group_.get(), subject, own);
}

Result<bool> JobRanks::as_rank0(bool own) {
  if (!group_) return own;
  DF_TRY(const std::string said, share_rank0s(*group_, "as rank 0", own ? "yes" : "no"));
  return said == "yes";
}

Result<std::vector<Point>> JobRanks::points_of_rank0(Result<std::vector<Point>> own) {
  if (!group_) return own;
  Result<std::string> text;
  if (own) {
    text = encode(*own);
  } else {
    text = std::unexpected(own.error());
  }
  DF_TRY(const std::string shared, share_rank0s(*group_, "candidates", std::move(text)));
  return decode_points(shared);
}

}  // namespace deepfreeze
