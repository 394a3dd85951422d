#include "api/near_room.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kLookPauseMin{10};
constexpr std::chrono::milliseconds kLookPauseMax{1'000};

}  // namespace

Status check_bytes_max(const Options& options) {
  if (!options.bytes_max) return {};
  if (*options.bytes_max == 0) {
    return fail(ErrorCode::kInvalidArgument, "bytes_max: 0 bytes is room for nothing");
  }
  if (!options.tiers.empty() && has_rule(options.keep)) return {};
  return fail(ErrorCode::kInvalidArgument,
              "bytes_max: it counts checkpoints that stay only because a tier waits for them. "
              "Without tiers, and a rule in keep, there are none: give both, or no bytes_max");
}

// A run that can't be listed has room: the save itself will tell the reason.
std::optional<NearRoom::Need> NearRoom::unmet(Vfs& near, std::uint64_t bytes,
                                              const InFlight& in_flight) const {
  const std::optional<SaveBytes> other = in_flight();  // first: it may be committed meanwhile
  const auto listing = read_run(near);
  if (!listing) return std::nullopt;
  Need need{.space = flusher_->space(*listing)};
  const NearUse& use = need.space.use;
  need.bytes = use.bytes + std::max(bytes, use.newest_bytes);
  if (other && !is_committed_in(*listing, other->name)) need.bytes += other->bytes;
  if (use.held_bytes == 0 || need.bytes <= *bytes_max_) return std::nullopt;
  return need;
}

Status NearRoom::refuse(const Need& need, Vfs& near) {
  flusher_->note_refused(need.space.tiers);
  std::string text = fmt::format(
      "no room in {}: with this save, checkpoints would take {} bytes of {} (bytes_max), and {} of "
      "them stay only for {}, which is behind. Mend or free the tier, or raise bytes_max",
      near.path_of(""), need.bytes, *bytes_max_, need.space.use.held_bytes, need.space.why);
  if (!std::exchange(is_told_, true)) log_warning("saves are left out: " + text);
  return fail(ErrorCode::kBusy, std::move(text));
}

Status NearRoom::await(Vfs& near, std::uint64_t bytes, const InFlight& in_flight,
                       Monotonic::time_point deadline) {
  if (!is_bounded()) return {};
  std::chrono::milliseconds pause = kLookPauseMin;
  while (flusher_->is_behind()) {
    const std::optional<Need> need = unmet(near, bytes, in_flight);
    if (!need) break;
    const auto now = Monotonic::now();
    // A tier that is down may stay so for hours: no step of the training waits for it.
    if (now >= deadline || !need->space.is_moving) return refuse(*need, near);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    flusher_->await_news(std::min(pause, left));
    pause = std::min(2 * pause, kLookPauseMax);
  }
  is_told_ = false;
  return {};
}

}  // namespace deepfreeze
