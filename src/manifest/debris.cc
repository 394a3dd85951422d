// Deleting debris.
//
//  1  Fenced undecided attempts are given the outcome "aborted". One that turns out to be committed
//     stays.
//  2  The newest steps are made durable, as before every deletion (retention.cc).
//  3  The attempts go as the collector lets them go (remove_attempt.cc).
//  4  Temporary files are removed, and the directories that held them synced, so that what is
//     reported as deleted does not come back.
#include "manifest/debris.h"

#include <algorithm>
#include <set>

#include "base/fail_point.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/retention.h"

namespace deepfreeze {
namespace {

bool is_dead_attempt(const Oddity& oddity) {
  return oddity.kind == OddityKind::kHalfDeleted || oddity.kind == OddityKind::kAborted ||
         oddity.kind == OddityKind::kFenced;
}

class Sweep {
 public:
  Sweep(Vfs& vfs, const RunListing& listing, std::span<const Oddity> found)
      : vfs_(vfs), listing_(listing), found_(found) {}

  DebrisReport run() {
    delete_attempts(dead_attempts());
    delete_temporaries(old_temporaries());
    return std::move(report_);
  }

 private:
  [[nodiscard]] std::vector<const Oddity*> dead_attempts();
  [[nodiscard]] std::vector<const Oddity*> old_temporaries();
  void delete_attempts(const std::vector<const Oddity*>& dead);
  void delete_temporaries(const std::vector<const Oddity*>& old);
  Status remove_all(const std::vector<const Oddity*>& dead);
  Status remove_temporary(const std::string& name);
  Status sync_parent(std::string_view name, std::set<std::string>& synced);
  bool make_aborted(const Oddity& fenced);  // step 1
  [[nodiscard]] bool holds_foreign(const AttemptName& name) const;
  [[nodiscard]] bool is_committed(const AttemptName& name) const;
  [[nodiscard]] bool is_gone(const AttemptName& name);

  void leave(const Oddity& oddity, std::string why) {
    report_.left.push_back({oddity.name, oddity.bytes, std::move(why)});
  }
  void fail_on(const Oddity& oddity, const Error& error) {
    report_.failed = true;
    leave(oddity, error.message());
  }
  void done(const Oddity& oddity) { report_.deleted.push_back({oddity.name, oddity.bytes, {}}); }

  Vfs& vfs_;
  const RunListing& listing_;
  const std::span<const Oddity> found_;
  DebrisReport report_;
};

bool Sweep::holds_foreign(const AttemptName& name) const {
  return std::ranges::any_of(found_, [&](const Oddity& oddity) {
    return oddity.kind == OddityKind::kForeign && oddity.attempt == name;
  });
}

bool Sweep::is_committed(const AttemptName& name) const {
  const auto found = std::ranges::find(listing_.attempts, name, &AttemptState::name);
  return found != listing_.attempts.end() && found->committed();
}

bool Sweep::is_gone(const AttemptName& name) {
  const auto entries = vfs_.list(attempt_dir_name(name));
  return !entries && entries.error().code() == ErrorCode::kNotFound;
}

bool Sweep::make_aborted(const Oddity& fenced) {
  const auto outcome = abort_fenced(vfs_, listing_.run.run_id, *fenced.attempt);
  if (!outcome && is_gone(*fenced.attempt)) return true;  // another collector was faster
  if (!outcome) {
    fail_on(fenced, outcome.error());
    return false;
  }
  if (outcome->outcome == Outcome::kAborted) return true;
  leave(fenced, "it has been committed meanwhile");
  return false;
}

std::vector<const Oddity*> Sweep::dead_attempts() {
  std::vector<const Oddity*> dead;
  for (const Oddity& oddity : found_) {
    if (!is_dead_attempt(oddity)) continue;
    if (holds_foreign(*oddity.attempt)) {
      leave(oddity, "it holds what is not ours");
    } else if (oddity.kind != OddityKind::kFenced || make_aborted(oddity)) {
      dead.push_back(&oddity);
    }
  }
  return dead;
}

Status Sweep::remove_all(const std::vector<const Oddity*>& dead) {
  std::vector<AttemptName> names;
  for (const Oddity* oddity : dead) names.push_back(*oddity->attempt);
  DF_TRY_VOID(settle_newest(vfs_, listing_, 1));
  return remove_attempts(vfs_, names);
}

void Sweep::delete_attempts(const std::vector<const Oddity*>& dead) {
  if (dead.empty()) return;
  const Status removed = remove_all(dead);
  for (const Oddity* oddity : dead) {
    if (removed) {
      done(*oddity);
    } else if (is_gone(*oddity->attempt)) {
      fail_on(*oddity, removed.error().within("it is gone, and a power cut may bring it back"));
    } else {
      fail_on(*oddity, removed.error());
    }
  }
}

std::vector<const Oddity*> Sweep::old_temporaries() {
  using std::chrono::microseconds;
  std::vector<const Oddity*> old;
  for (const Oddity& oddity : found_) {
    if (oddity.kind != OddityKind::kTemporary) continue;
    if (oddity.attempt && !is_committed(*oddity.attempt)) continue;  // goes with it, or stays
    if (microseconds(oddity.age_micros) > kTemporaryAge) {
      old.push_back(&oddity);
    } else {
      leave(oddity, "it is not known to be an hour old");
    }
  }
  return old;
}

Status Sweep::remove_temporary(const std::string& name) {
  const Status removed = vfs_.remove_file(name);
  if (!removed && removed.error().code() != ErrorCode::kNotFound) return removed;
  DF_FAIL_POINT("debris.removed");
  return {};
}

Status Sweep::sync_parent(std::string_view name, std::set<std::string>& synced) {
  const std::size_t slash = name.rfind('/');
  const std::string parent(name.substr(0, slash == std::string_view::npos ? 0 : slash));
  if (synced.contains(parent)) return {};
  DF_TRY_VOID(vfs_.sync_dir(parent));
  DF_FAIL_POINT("debris.synced");
  synced.insert(parent);
  return {};
}

void Sweep::delete_temporaries(const std::vector<const Oddity*>& old) {
  std::vector<const Oddity*> removed;
  for (const Oddity* oddity : old) {
    const Status status = remove_temporary(oddity->name);
    if (status) {
      removed.push_back(oddity);
    } else {
      fail_on(*oddity, status.error());
    }
  }
  std::set<std::string> synced;
  for (const Oddity* oddity : removed) {
    const Status status = sync_parent(oddity->name, synced);
    if (status) {
      done(*oddity);
    } else {
      fail_on(*oddity, status.error());
    }
  }
}

}  // namespace

DebrisReport delete_debris(Vfs& vfs, const RunListing& listing, std::span<const Oddity> found) {
  return Sweep(vfs, listing, found).run();
}

}  // namespace deepfreeze
