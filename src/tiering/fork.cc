//  1  The new run: its record, and a first generation.
//  2  The attempt's directory, durably.
//  3  Each file by its name: linked, or else copied, every block checked.
//  4  The directory is synced: all names are durable.
//  5  The manifest, as by any commit. It names the origin of each file.
//
// Before step 5 there is no checkpoint, and the next claim of the new run removes the rest.
#include "tiering/fork.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "base/fail_point.h"
#include "base/random_id.h"
#include "base/rate_limit.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/parts_check.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "storage/posix_vfs.h"
#include "storage/vfs_tier_store.h"
#include "tiering/copy_file.h"

namespace deepfreeze {
namespace {

// A run that somebody has begun may be about to save. But this fork may have failed before.
Status check_unused(Vfs& to, const ParentPoint& parent) {
  const auto listing = read_run(to);
  if (!listing) {
    if (listing.error().code() == ErrorCode::kNotFound) return {};
    return std::unexpected(listing.error());
  }
  const bool has_any = std::ranges::any_of(
      listing->attempts, [](const AttemptState& attempt) { return attempt.committed(); });
  if (!has_any && listing->run.parent == parent) return {};
  return fail(ErrorCode::kExists,
              to.path_of("") + " is a run already: a fork begins one, so choose a new directory");
}

// Step 1.
Result<Identity> begin_run(Vfs& to, const Manifest& manifest, const ParentPoint& parent) {
  DF_TRY_VOID(check_unused(to, parent));
  DF_TRY(const RunRecord run, create_or_open_run(to, parent));
  DF_TRY(const GenerationRecord claim, claim_generation(to, run.run_id, std::nullopt));
  return Identity{.run_id = run.run_id,
                  .attempt_id = random_id(),
                  .generation = claim.generation,
                  .step = manifest.point.step,
                  .save_index = 1,
                  .part = {.rank = 0, .world_size = manifest.world_size}};
}

class Files {
 public:
  Files(Vfs& from, const Manifest& manifest, Vfs& to, std::string directory)
      : from_(from), manifest_(manifest), to_(to), directory_(std::move(directory)) {}

  // Step 3.
  [[nodiscard]] Status bring_all() {
    for (const ManifestFile& file : manifest_.files) {
      DF_TRY_VOID(bring(file));
      DF_FAIL_POINT("fork.file");
      brought_.push_back(file);
      brought_.back().origin = origin_of(manifest_, file);
    }
    return {};
  }
  [[nodiscard]] std::vector<ManifestFile> brought() { return std::move(brought_); }
  [[nodiscard]] std::uint64_t bytes_copied() const { return bytes_copied_; }

 private:
  [[nodiscard]] Status bring(const ManifestFile& file) {
    DF_TRY(const auto opened,
           from_.open_read(path_in_run(manifest_, file.name), Access::kBuffered));
    if (!has_sealed_file(from_, manifest_, file)) {
      return fail(ErrorCode::kCorrupt, from_.path_of(path_in_run(manifest_, file.name)) +
                                           " is not the file that its manifest lists");
    }
    DF_TRY(const std::uint64_t bytes, opened->size());
    if (bytes != file.bytes) return copy(file);  // packed: a run's own directory has plain ones
    const Status linked = to_.link_open_file(*opened, join_name(directory_, file.name));
    if (linked || linked.error().code() != ErrorCode::kUnsupported) return linked;
    return copy(file);
  }

  [[nodiscard]] Status copy(const ManifestFile& file) {
    VfsTierStore store(to_);
    RateLimit unlimited(0);
    const std::atomic<bool> never{false};
    const CopyRequest request = {.from = from_,
                                 .manifest = manifest_,
                                 .file = file,
                                 .to = store,
                                 .to_name = join_name(directory_, file.name)};
    DF_TRY_VOID(copy_sealed_file(request, {.rate = unlimited, .stop = never}));
    bytes_copied_ += file.bytes;
    return {};
  }

  Vfs& from_;
  const Manifest& manifest_;
  Vfs& to_;
  const std::string directory_;
  std::vector<ManifestFile> brought_;
  std::uint64_t bytes_copied_ = 0;
};

Result<Forked> fork_into(Vfs& from, const Manifest& manifest, Vfs& to, const Identity& identity,
                         const ParentPoint& parent) {
  const std::string directory = attempt_dir_name(attempt_of(identity));
  DF_TRY_VOID(begin_attempt(to, attempt_of(identity)));
  Files files(from, manifest, to, directory);
  DF_TRY_VOID(files.bring_all());
  DF_TRY_VOID(to.sync_dir(directory));
  DF_FAIL_POINT("fork.synced");
  CheckedParts parts{.files = files.brought(),
                     .annotations = manifest.annotations,
                     .non_finite = manifest.non_finite,
                     .diverged = manifest.diverged};
  parts.annotations.parent = parent;
  const std::vector<ManifestFile> here = parts.files;
  const CommitRequest request = {
      .identity = identity, .world_size = manifest.world_size, .own = {}};
  DF_TRY(Manifest committed, conclude_attempt(to, request, std::move(parts), here));
  return Forked{.manifest = std::move(committed), .bytes_copied = files.bytes_copied()};
}

}  // namespace

Result<Forked> fork_attempt(Vfs& from, const Manifest& manifest, const std::string& parent,
                            Vfs& to) {
  const ParentPoint point{.run = parent, .step = manifest.point.step};
  DF_TRY(const Identity identity, begin_run(to, manifest, point));
  auto forked = fork_into(from, manifest, to, identity, point);
  if (forked) return forked;
  std::ignore = remove_attempt(to, attempt_of(identity));
  return std::unexpected(
      forked.error().within(fmt::format("fork step {} into {}", point.step, to.path_of(""))));
}

Result<Forked> fork_attempt(Vfs& from, const Manifest& manifest, const std::string& parent,
                            const std::string& to) {
  DF_TRY_VOID(make_durable_directories(to));
  DF_TRY(const auto vfs, open_posix_vfs(to));
  return fork_attempt(from, manifest, parent, *vfs);
}

}  // namespace deepfreeze
