// Flusher's mending: bad copies on one tier are replaced by good ones of another. Nothing good is
// replaced: the copy that arrives has been verified, and has the bytes that the bad one should
// have.
#include <algorithm>

#include "base/log.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "tiering/copy_file.h"
#include "tiering/flusher.h"
#include "tiering/shared_files.h"

namespace deepfreeze {
namespace {

// All its files are there, and nobody deletes them: a deletion renames the manifest first, and ends
// without files. A listing that came during that rename may have missed both names.
bool has_lost_its_manifest(Vfs& near, const AttemptState& attempt, const Manifest& manifest) {
  if (!attempt.undecided()) return false;
  const auto entries = near.list(attempt_dir_name(attempt.name));
  if (!entries || has_name(*entries, kDeletedManifestFile)) return false;
  return std::ranges::all_of(manifest.files, [&](const ManifestFile& file) {
    return has_sealed_file(near, manifest, file);
  });
}

}  // namespace

void Flusher::mend(Mend wanted) {
  const std::lock_guard lock(mutex_);
  const bool is_known = std::ranges::find(mends_, wanted) != mends_.end();
  if (is_known || mends_.size() == kMendsMax) return;  // the next restore comes upon the rest
  mends_.push_back(std::move(wanted));
  workers_.front()->give_work();
  changed_.notify_all();
}

void Flusher::mend_all(Vfs& near) {
  std::vector<Mend> mends;
  {
    const std::lock_guard lock(mutex_);
    std::swap(mends, mends_);
  }
  for (const Mend& wanted : mends) {
    const std::string place =
        wanted.file.name + " of step " + std::to_string(wanted.manifest.point.step) + " on " +
        (wanted.bad == 0 ? near.path_of("") : workers_[wanted.bad - 1]->tier.place);
    const Status mended = mend_one(wanted, near);
    if (mended) {
      log_note("mended " + place + " from another tier");
    } else if (mended.error().code() != ErrorCode::kCancelled) {
      log_warning(place + " stays damaged: " + mended.error().message());
    }
  }
  if (mends.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) {  // worth another try
    if (worker->report.unreadable.empty()) continue;
    worker->report.unreadable.clear();
    worker->give_work();
  }
  changed_.notify_all();
}

// Only while the tier counts the attempt as committed: a deletion is not undone.
Status Flusher::mend_one(const Mend& wanted, Vfs& near) {
  VfsTierStore near_store(near);
  const auto store = [&](std::size_t tier) -> TierStore& {
    return tier == 0 ? near_store : *workers_[tier - 1]->tier.store;
  };
  const AttemptName name = name_of(wanted.manifest);
  TierStore& bad = store(wanted.bad);
  Status last = fail(ErrorCode::kIncomplete, "no tier has a good copy");
  for (std::size_t tier = 0; tier <= workers_.size(); ++tier) {
    if (tier == wanted.bad) continue;
    DF_TRY_VOID(read_manifest(bad.view(), name, wanted.manifest.run_id));
    Worker& worker = *workers_[wanted.bad == 0 ? 0 : wanted.bad - 1];
    PackingJudge* const packing = wanted.bad == 0 ? nullptr : worker.packing();
    DF_TRY_VOID(retire_referred(bad, path_in_run(wanted.manifest, wanted.file.name)));
    last = copy_sealed_file({.from = store(tier).view(),
                             .manifest = wanted.manifest,
                             .file = wanted.file,
                             .to = bad,
                             .if_taken = IfTaken::kReplace},
                            {.rate = worker.rate, .stop = stop_, .packing = packing});
    if (last) break;
  }
  DF_TRY_VOID(last);
  const auto still = read_manifest(bad.view(), name, wanted.manifest.run_id);
  if (!still && still.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(still.error());
  }
  if (!still) {
    std::ignore = remove_attempt(bad.view(), name);  // deleted meanwhile
    return fail(ErrorCode::kCancelled, "it was deleted meanwhile");
  }
  return bad.settle(attempt_dir_name(name));
}

// Manifests that do not verify on the first tier, or are lost there, and verify on this one. Its
// bytes are those that should be there: a manifest is made once, and copied.
void Flusher::mend_manifests(const Round& round, const RunListing& there) {
  VfsTierStore near_store(*round.near);
  for (const AttemptState& attempt : round.listing->attempts) {
    const auto good = std::ranges::find(there.attempts, attempt.name, &AttemptState::name);
    if (good == there.attempts.end() || !good->committed()) continue;
    if (!attempt.fault && !has_lost_its_manifest(*round.near, attempt, *good->manifest)) continue;
    const std::string directory = attempt_dir_name(attempt.name);
    const std::string path = directory + "/" + std::string(kManifestFile);
    const auto text =
        read_file(workers_[round.number]->tier.store->view(), path, kManifestBytesMax);
    if (!text) continue;
    const IfTaken if_taken = attempt.fault ? IfTaken::kReplace : IfTaken::kRefuse;
    const Status put = put_text(near_store, path, *text, if_taken);
    if (!put && put.error().code() == ErrorCode::kExists) continue;  // decided meanwhile
    const Status mended = put ? near_store.settle(directory) : put;
    if (mended) {
      log_note("mended " + round.near->path_of(path) + " from another tier");
    } else {
      log_warning(round.near->path_of(path) + " stays damaged: " + mended.error().message());
    }
  }
}

}  // namespace deepfreeze
