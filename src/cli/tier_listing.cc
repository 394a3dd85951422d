#include "cli/tier_listing.h"

#include <fmt/format.h>

#include "base/try.h"
#include "restore/opened_run.h"

namespace deepfreeze {

Result<ListedTier> list_tier(const std::string& path, const RunRecord& run,
                             const std::string& run_path) {
  auto tier = open_run(path);
  if (!tier && tier.error().code() == ErrorCode::kNotFound) return ListedTier{};
  if (!tier) return std::unexpected(tier.error());
  if (tier->listing.run.run_id != run.run_id) {
    return fail(ErrorCode::kMismatch, fmt::format("{} holds run {}, and {} is run {}", path,
                                                  tier->listing.run.run_id, run_path, run.run_id));
  }
  return ListedTier{.vfs = std::move(tier->vfs), .listing = std::move(tier->listing)};
}

}  // namespace deepfreeze
