// Deleting debris.
//
//  1  The newest step is made durable, as before every deletion (retention.cc).
//  2  Half-deleted and aborted attempts are deleted as the collector does it (remove_attempt.cc),
//     and so are old temporary files. None of this needs room on the disk.
//  3  The directories that held them are synced, so that nothing that is reported as deleted comes
//     back.
//  4  Fenced undecided attempts are deleted one by one: each is given the outcome "aborted", for
//     which there may be no room except the room just freed, and then goes as in steps 2 and 3. An
//     attempt that turns out to be committed stays. One that can't be recorded as aborted stays,
//     too: its process may be about to publish it, and only that record keeps it from doing so.
//
// An attempt is listed again right before it is deleted: if it holds a foreign name, it stays.
#include "manifest/debris.h"

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/fail_point.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/name_kind.h"
#include "manifest/remove_attempt.h"
#include "manifest/retention.h"

namespace deepfreeze {
namespace {

using Oddities = std::vector<const Oddity*>;

constexpr const char* kAtWork = "another collector is at work: run it again";
constexpr const char* kMakeRoom =
    ": there is no room to record that it is aborted; free some elsewhere, or delete it by hand "
    "once no process of its generation runs any more";

bool is_dead_attempt(const Oddity& oddity) {
  return oddity.kind == OddityKind::kHalfDeleted || oddity.kind == OddityKind::kAborted ||
         oddity.kind == OddityKind::kFenced;
}

class Sweep {
 public:
  Sweep(Vfs& vfs, const RunListing& listing, std::span<const Oddity> found)
      : vfs_(vfs), listing_(listing), found_(found) {}

  DebrisReport run();

 private:
  [[nodiscard]] Oddities dead_attempts() const;
  [[nodiscard]] Oddities old_temporaries();
  bool settle(const Oddities& dead);  // step 1
  [[nodiscard]] Status remove_file(const std::string& name);
  bool remove(const Oddity& oddity);         // step 2, as far as it is not left
  void finish(const Oddities& removed);      // step 3
  void delete_fenced(const Oddity& fenced);  // step 4
  bool make_aborted(const Oddity& fenced);
  void explain_not_aborted(const Oddity& fenced, const Error& error);
  Status sync_directory(const std::string& name);
  [[nodiscard]] bool may_go(const Oddity& attempt);
  [[nodiscard]] bool is_committed(const AttemptName& name) const;
  [[nodiscard]] bool is_dead(const AttemptName& name) const;
  [[nodiscard]] bool is_overtaken(const AttemptName& name, const Error& error);

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

DebrisReport Sweep::run() {
  const Oddities dead = dead_attempts();
  const bool settled = settle(dead);
  Oddities removed;
  for (const Oddity* attempt : dead) {
    if (!settled || attempt->kind == OddityKind::kFenced) continue;
    if (remove(*attempt)) removed.push_back(attempt);
  }
  for (const Oddity* file : old_temporaries()) {
    if (remove(*file)) removed.push_back(file);
  }
  finish(removed);
  for (const Oddity* attempt : dead) {
    if (settled && attempt->kind == OddityKind::kFenced) delete_fenced(*attempt);
  }
  return std::move(report_);
}

// Somebody may have put a file there since the survey.
bool Sweep::may_go(const Oddity& attempt) {
  const auto entries = vfs_.list(attempt.name);
  if (!entries && entries.error().code() == ErrorCode::kNotFound) return true;  // it is gone
  if (!entries) {
    fail_on(attempt, entries.error());
    return false;
  }
  const bool holds_foreign = std::ranges::any_of(
      *entries, [](const DirEntry& entry) { return kind_in_attempt(entry) == NameKind::kForeign; });
  if (holds_foreign) leave(attempt, "it holds foreign files");
  return !holds_foreign;
}

bool Sweep::is_committed(const AttemptName& name) const {
  const auto found = std::ranges::find(listing_.attempts, name, &AttemptState::name);
  return found != listing_.attempts.end() && found->committed();
}

bool Sweep::is_dead(const AttemptName& name) const {
  return std::ranges::any_of(found_, [&](const Oddity& oddity) {
    return is_dead_attempt(oddity) && oddity.attempt == name;
  });
}

// Another collector has deleted it, or has aborted it and taken the headers that tell whose it was.
bool Sweep::is_overtaken(const AttemptName& name, const Error& error) {
  if (error.code() != ErrorCode::kBusy && error.code() != ErrorCode::kNotFound) return false;
  const auto entries = vfs_.list(attempt_dir_name(name));
  if (!entries) return entries.error().code() == ErrorCode::kNotFound;
  const auto manifest = read_manifest(vfs_, name, listing_.run.run_id);
  return manifest && manifest->outcome == Outcome::kAborted;
}

Oddities Sweep::dead_attempts() const {
  Oddities dead;
  for (const Oddity& oddity : found_) {
    if (is_dead_attempt(oddity)) dead.push_back(&oddity);
  }
  return dead;
}

bool Sweep::settle(const Oddities& dead) {
  if (dead.empty()) return true;
  const Status settled = settle_newest(vfs_, listing_, 1);
  if (settled) return true;
  // The newest step of this listing is gone: the listing is too old to decide deletions by.
  const bool overtaken = settled.error().code() == ErrorCode::kNotFound;
  for (const Oddity* oddity : dead) {
    if (overtaken) {
      leave(*oddity, kAtWork);
    } else {
      fail_on(*oddity, settled.error());
    }
  }
  return false;
}

Status Sweep::remove_file(const std::string& name) {
  const Status removed = vfs_.remove_file(name);
  if (!removed && removed.error().code() != ErrorCode::kNotFound) return removed;
  DF_FAIL_POINT("debris.removed");
  return {};
}

bool Sweep::remove(const Oddity& oddity) {
  const bool is_file = oddity.kind == OddityKind::kTemporary;
  if (!is_file && !may_go(oddity)) return false;
  const Status removed =
      is_file ? remove_file(oddity.name) : remove_unsynced(vfs_, *oddity.attempt);
  if (removed) return true;
  // Another process has put a file in since the directory was emptied. Before it publishes, it
  // finds the other files gone (commit.cc, step 6) and gives the attempt up as well.
  if (removed.error().os_errno() == ENOTEMPTY) {
    leave(oddity, kAtWork);
  } else {
    fail_on(oddity, removed.error());
  }
  return false;
}

Oddities Sweep::old_temporaries() {
  using std::chrono::microseconds;
  Oddities old;
  for (const Oddity& oddity : found_) {
    if (oddity.kind != OddityKind::kTemporary) continue;
    if (oddity.attempt && is_dead(*oddity.attempt)) continue;  // goes with it, or stays
    if (oddity.attempt && !is_committed(*oddity.attempt)) {
      leave(oddity, "its attempt is not committed: it may be in use");
    } else if (microseconds(oddity.age_micros) > kTemporaryAge) {
      old.push_back(&oddity);
    } else {
      leave(oddity, "it is not known to be an hour old");
    }
  }
  return old;
}

Status Sweep::sync_directory(const std::string& name) {
  const Status synced = vfs_.sync_dir(name);
  // If the directory is gone, so are its entries: the collector that removed it syncs the parent.
  if (!synced && synced.error().code() != ErrorCode::kNotFound) return synced;
  DF_FAIL_POINT("debris.synced");
  return {};
}

void Sweep::finish(const Oddities& removed) {
  std::map<std::string, Status> synced;  // each once
  for (const Oddity* oddity : removed) {
    const std::size_t slash = oddity->name.rfind('/');
    const std::string parent = oddity->name.substr(0, slash == std::string::npos ? 0 : slash);
    if (!synced.contains(parent)) synced.emplace(parent, sync_directory(parent));
    const Status& status = synced.at(parent);
    if (status) {
      done(*oddity);
    } else {
      fail_on(*oddity, status.error().within("it is gone, and a power cut may bring it back"));
    }
  }
}

void Sweep::delete_fenced(const Oddity& fenced) {
  if (may_go(fenced) && make_aborted(fenced) && remove(fenced)) finish({&fenced});
}

bool Sweep::make_aborted(const Oddity& fenced) {
  const auto outcome = abort_fenced(vfs_, listing_.run.run_id, *fenced.attempt);
  if (!outcome && is_overtaken(*fenced.attempt, outcome.error())) return true;
  if (!outcome) {
    explain_not_aborted(fenced, outcome.error());
    return false;
  }
  if (outcome->outcome == Outcome::kAborted) return true;
  leave(fenced, "it has been committed meanwhile");
  return false;
}

void Sweep::explain_not_aborted(const Oddity& fenced, const Error& error) {
  if (error.code() == ErrorCode::kNotFound) return leave(fenced, kAtWork);
  report_.failed = true;
  leave(fenced, error.message() + (error.code() == ErrorCode::kNoSpace ? kMakeRoom : ""));
}

}  // namespace

DebrisReport delete_debris(Vfs& vfs, const RunListing& listing, std::span<const Oddity> found) {
  return Sweep(vfs, listing, found).run();
}

}  // namespace deepfreeze
