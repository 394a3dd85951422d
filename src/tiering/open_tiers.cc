#include "tiering/open_tiers.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "object/object_place.h"
#include "object/open_object.h"
#include "tiering/packing_judge.h"

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

// Neither links nor ".." are in the name of a store.
Status check_new_store(const std::string& url, std::span<const std::string> others) {
  for (const std::string& other : others) {
    if (!(url + "/").starts_with(other + "/") && !(other + "/").starts_with(url + "/")) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tier {}: it is the same place as {}, or one lies in the other. Each "
                            "tier needs a prefix of its own",
                            url, other));
  }
  return {};
}

Status check_rules(const Tier& tier) {
  if (!is_object_url(tier.path) && !(tier.endpoint.empty() && tier.region.empty())) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tier {}: endpoint and region are for object stores", tier.path));
  }
  if (tier.every != 0U && !has_no_rule(tier.keep)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("tier {}: 0 checkpoints or steps is no rule", tier.path));
}

// For tiers that will be written.
Status check_can_pack(std::span<const Tier> tiers) {
  for (const Tier& tier : tiers) {
    if (tier.compress != Compress::kAuto) continue;
    const Status can_pack = check_packing();
    if (!can_pack) return std::unexpected(can_pack.error().within("tier " + tier.path));
  }
  return {};
}

// Their places, before any is made or asked.
Result<std::vector<std::string>> check_places(const fs::path& root, std::span<const Tier> wanted) {
  std::vector<fs::path> paths = {root};
  std::vector<std::string> urls;
  std::vector<std::string> places;
  for (const Tier& tier : wanted) {
    DF_TRY_VOID(check_rules(tier));
    DF_TRY(std::string place, absolute_place(tier.path));
    if (is_object_url(place)) {
      DF_TRY_VOID(check_new_store(place, urls));
      urls.push_back(place);
    } else {
      DF_TRY_VOID(check_apart(place, paths));
      paths.emplace_back(place);
    }
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace

Result<std::vector<FarTier>> open_tiers(const fs::path& root, std::span<const Tier> wanted,
                                        bool read_only) {
  if (!read_only) DF_TRY_VOID(check_can_pack(wanted));
  DF_TRY(const std::vector<std::string> places, check_places(root, wanted));
  std::vector<FarTier> opened;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const ObjectServer server = {.endpoint = wanted[i].endpoint, .region = wanted[i].region};
    auto store = open_store(places[i], read_only, server, wanted[i].keys);
    if (!store) return std::unexpected(store.error().within("open tier " + places[i]));
    opened.push_back({.place = places[i],
                      .store = *std::move(store),
                      .every = wanted[i].every,
                      .keep = wanted[i].keep,
                      .bytes_per_second = wanted[i].bytes_per_second,
                      .packs = wanted[i].compress == Compress::kAuto});
    if (!read_only && !is_object_url(places[i])) note_same_device(root, places[i]);
  }
  return opened;
}

}  // namespace deepfreeze
