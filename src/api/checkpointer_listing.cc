// The checkpoints that a Checkpointer can restore.
#include <fmt/format.h>

#include <algorithm>

#include "api/checkpointer_impl.h"
#include "api/open_checkpoint.h"
#include "base/try.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

Status status_of(const Result<std::vector<CheckpointInfo>>& infos) {
  if (infos) return {};
  return std::unexpected(infos.error());
}

Result<std::vector<Point>> points_of(const Result<std::vector<CheckpointInfo>>& infos) {
  if (!infos) return std::unexpected(infos.error());
  std::vector<Point> points;
  for (const CheckpointInfo& info : *infos) points.push_back(point_of(info));
  return points;
}

// The checkpoints that rank 0 named, in its order. On nodes all ranks have the same list, unless a
// checkpoint was deleted while they read it: they list anew.
Result<std::vector<CheckpointInfo>> pick(std::vector<CheckpointInfo> infos,
                                         const std::vector<Point>& points, bool is_on_nodes) {
  std::vector<CheckpointInfo> picked;
  for (const Point& point : points) {
    const auto found = std::ranges::find(infos, point.attempt_id, &CheckpointInfo::attempt_id);
    if (found == infos.end() && is_on_nodes) {
      return fail(ErrorCode::kGone, fmt::format("step {} was deleted meanwhile", point.step));
    }
    if (found == infos.end()) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("rank 0 sees step {}, and this rank does not: the ranks need one "
                              "directory that all see, or near=\"node\" if each node has its own",
                              point.step));
    }
    picked.push_back(std::move(*found));
  }
  return picked;
}

}  // namespace

Result<TieredListing> Checkpointer::Impl::read_all() {
  DF_TRY_VOID(writer.find_directory());
  DF_TRY_VOID(adopt());
  return read_tiers(*vfs, far_views);
}

Result<std::vector<CheckpointInfo>> Checkpointer::Impl::own_candidates() {
  DF_TRY(const TieredListing found, read_all());
  return describe_tiers(found, *vfs, far_views);
}

// Other nodes are nearer than the tiers.
Result<std::vector<CheckpointInfo>> Checkpointer::Impl::candidates_on_nodes() {
  auto found = read_all();
  Result<RunListing> own;
  if (found) {
    own = found->tiers.front();
  } else {
    own = std::unexpected(found.error());
  }
  DF_TRY(std::vector<NearNodes::Other> others, nodes->list_others(own));
  std::vector<Vfs*> views;
  auto place = found->tiers.begin() + 1;
  for (NearNodes::Other& other : others) {
    views.push_back(other.files);
    place = found->tiers.insert(place, std::move(other.listing)) + 1;
  }
  views.insert(views.end(), far_views.begin(), far_views.end());
  found->merged = merge(found->tiers);
  return describe_tiers(*found, *vfs, views);
}

Result<CheckpointInfo> Checkpointer::Impl::best_of_own(const std::vector<CheckpointInfo>& infos,
                                                       const BestBy& by) const {
  if (options.keep.best) return best_of(infos, by, options.keep.best);
  DF_TRY(const RunListing listing, read_run(*vfs));
  return best_of(infos, by, recorded_keep(listing).value_or(Keep{}).best);
}

// Rank 0 looks before the others, and they take its order.
Result<std::vector<CheckpointInfo>> Checkpointer::Impl::candidates() {
  if (ranks.is_alone()) return own_candidates();
  Result<std::vector<CheckpointInfo>> own;
  if (nodes) {
    own = candidates_on_nodes();
  } else if (ranks.commits()) {
    own = own_candidates();
  }
  DF_TRY(const std::vector<Point> points, ranks.points_of_rank0(points_of(own)));
  if (!nodes && !ranks.commits()) own = own_candidates();
  auto chosen = own ? pick(*std::move(own), points, nodes != nullptr) : std::move(own);
  DF_TRY_VOID(ranks.agree("candidates", status_of(chosen)));
  return chosen;
}

}  // namespace deepfreeze
