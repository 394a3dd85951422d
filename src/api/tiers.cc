#include "api/tiers.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "storage/posix_vfs.h"
#include "storage/vfs_tier_store.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

bool has_no_rule(const Keep& keep) {
  return keep.last == 0U || keep.every == 0U || (keep.best && keep.best->count == 0);
}

// Links are followed as far as the path exists, so that two names of one directory show.
fs::path real_path(const fs::path& path) {
  std::error_code failed;
  fs::path real = fs::weakly_canonical(path, failed);
  return failed ? path.lexically_normal() : real;
}

bool is_within(const fs::path& inner, const fs::path& outer) {
  const auto [rest, end] = std::ranges::mismatch(outer, inner);
  return rest == outer.end();
}

Status check_apart(const fs::path& path, std::span<const fs::path> others) {
  for (const fs::path& other : others) {
    if (!is_within(real_path(path), real_path(other)) &&
        !is_within(real_path(other), real_path(path))) {
      continue;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tier {}: it is the same directory as {}, or one lies in the other. "
                            "Each tier needs a directory of its own",
                            path.string(), other.string()));
  }
  return {};
}

// A mount that is missing leaves its mount point, on another disk than the user thinks.
void note_same_device(const fs::path& root, const fs::path& tier) {
  struct stat own = {};
  struct stat far = {};
  if (::stat(root.c_str(), &own) != 0 || ::stat(tier.c_str(), &far) != 0) return;
  if (own.st_dev != far.st_dev) return;
  log_note(fmt::format("tier {} is on the same file system as {}: it is lost with it",
                       tier.string(), root.string()));
}

Result<std::unique_ptr<Vfs>> open_far(const fs::path& path, bool read_only) {
  if (!read_only) DF_TRY_VOID(make_durable_directories(path));
  DF_TRY(auto vfs, open_posix_vfs(path));
  if (!read_only) DF_TRY_VOID(vfs->check_writable());
  return vfs;
}

}  // namespace

Result<std::vector<FarTier>> open_tiers(const fs::path& root, std::span<const Tier> wanted,
                                        bool read_only) {
  std::vector<fs::path> paths = {root};
  std::vector<FarTier> opened;
  for (const Tier& tier : wanted) {
    if (tier.every == 0U || has_no_rule(tier.keep)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tier {}: 0 checkpoints or steps is no rule", tier.path));
    }
    DF_TRY(const fs::path path, absolute_path(tier.path));
    DF_TRY_VOID(check_apart(path, paths));
    auto vfs = open_far(path, read_only);
    if (!vfs) return std::unexpected(vfs.error().within("open tier " + path.string()));
    opened.push_back({.place = path.string(),
                      .store = std::make_unique<VfsTierStore>(*std::move(vfs)),
                      .every = tier.every,
                      .keep = tier.keep,
                      .bytes_per_second = tier.bytes_per_second});
    if (!read_only) note_same_device(root, path);
    paths.push_back(path);
  }
  return opened;
}

Result<TieredListing> read_tiers(Vfs& near, std::span<Vfs* const> far) {
  TieredListing found;
  DF_TRY(RunListing own, read_run(near));
  found.tiers.push_back(std::move(own));
  const RunRecord run = found.tiers.front().run;
  for (Vfs* tier : far) {
    auto listing = read_run(*tier);
    if (!listing && listing.error().code() == ErrorCode::kNotFound) {
      listing = RunListing{.run = run, .attempts = {}, .half_deleted = {}, .claims = {}};
    }
    if (!listing) {
      return std::unexpected(
          listing.error().within("a newer checkpoint may lie on a tier that can't be read; open "
                                 "the run without this tier to go on from the others"));
    }
    if (listing->run.run_id != run.run_id) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("tier {} holds another run now, {} in place of "
                              "{}",
                              tier->path_of(""), listing->run.run_id, run.run_id));
    }
    found.tiers.push_back(*std::move(listing));
  }
  found.merged = merge(found.tiers);
  return found;
}

void TierWatch::expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle) {
  if (tiers_.empty()) return;
  std::vector<TierProgress> progress;
  Awaited awaited{.name = name, .handle = handle, .tiers = {}};
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const bool is_meant = !tiers_[i].every || name.step % *tiers_[i].every == 0;
    const auto state = is_meant ? TierProgress::State::kWaiting : TierProgress::State::kNotMeant;
    progress.push_back({.path = tiers_[i].path, .state = state});
    if (is_meant) awaited.tiers.push_back(i);
  }
  handle->meant_for(std::move(progress));
  if (awaited.tiers.empty()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [](const Awaited& one) { return one.handle.expired(); });
  awaited_.push_back(std::move(awaited));
}

void TierWatch::forget(const AttemptName& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [&](const Awaited& one) { return one.name == name; });
}

std::vector<AttemptName> TierWatch::awaited(std::size_t tier) {
  std::vector<AttemptName> names;
  std::vector<std::shared_ptr<SaveHandle::State>> held;  // whose end must not come under the lock
  const std::lock_guard lock(mutex_);
  for (const Awaited& one : awaited_) {
    if (std::ranges::find(one.tiers, tier) == one.tiers.end()) continue;
    held.push_back(one.handle.lock());
    if (held.back() && held.back()->is_local()) names.push_back(one.name);
  }
  return names;
}

void TierWatch::tell(const AttemptName& name, std::size_t tier, Flusher::Fate fate,
                     std::string_view why) {
  std::shared_ptr<SaveHandle::State> handle;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(awaited_, name, &Awaited::name);
    if (found == awaited_.end() || std::erase(found->tiers, tier) == 0) return;
    handle = found->handle.lock();
    if (found->tiers.empty()) awaited_.erase(found);
  }
  if (!handle) return;
  const bool is_there = fate == Flusher::Fate::kCommitted;
  handle->on_tier(tier, is_there ? TierProgress::State::kCommitted : TierProgress::State::kLeftOut,
                  why);
}

void TierWatch::end(std::string_view why) {
  std::vector<Awaited> left;
  {
    const std::lock_guard lock(mutex_);
    std::swap(left, awaited_);
  }
  for (const Awaited& one : left) {
    const auto handle = one.handle.lock();
    if (!handle) continue;
    for (const std::size_t tier : one.tiers) {
      handle->on_tier(tier, TierProgress::State::kLeftOut, why);
    }
  }
}

}  // namespace deepfreeze
