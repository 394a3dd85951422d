#include "tiering/open_tiers.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "storage/posix_vfs.h"
#include "storage/vfs_tier_store.h"

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

}  // namespace deepfreeze
