// NodeParity's verdicts: how the protection of each checkpoint ended. A leader writes them into the
// checkpoints' directories, and the other ranks of its node read them there.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "api/node_parity.h"
#include "base/log.h"
#include "base/try.h"
#include "format/names.h"
#include "manifest/record_file.h"

namespace deepfreeze {

void NodeParity::tell(const std::weak_ptr<SaveHandle::State>& handle, bool is_protected,
                      std::string_view why_not) {
  const auto held = handle.lock();
  if (!held) return;
  is_protected ? held->protect() : held->give_up_protection(why_not);
}

// The thread writes it into the checkpoint's directory, and tells the handle.
void NodeParity::decide(const AttemptName& name, bool is_protected) {
  const auto known = std::ranges::find(verdicts_, name, &Verdict::name);
  if (known != verdicts_.end()) {
    known->is_protected = known->is_protected || is_protected;
    return;
  }
  Verdict verdict{.name = name, .handle = {}, .is_protected = is_protected};
  if (const Entry* const entry = find(name)) verdict.handle = entry->handle;
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
  verdicts_.push_back(std::move(verdict));
}

// Rank 0 begins one at a time, each newer than the one before: so older ones get no parity.
void NodeParity::give_up_older(const AttemptName& name) {
  std::vector<AttemptName> older;
  for (const Entry& entry : entries_) {
    if (entry.name == name) break;
    if (entry.is_committed) older.push_back(entry.name);
  }
  if (find(name) == nullptr) return;  // nobody knows which are older
  for (const AttemptName& one : older) decide(one, false);
}

// It was given up here, and rank 0 begins with it: its handle may be told "protected" yet.
void NodeParity::take_back(const AttemptName& name) {
  const auto known = std::ranges::find(verdicts_, name, &Verdict::name);
  if (known == verdicts_.end() || known->is_protected) return;
  entries_.insert(entries_.begin(), {.name = name, .handle = known->handle, .is_committed = true});
  verdicts_.erase(known);
}

// One that can't be marked now must not keep the others.
bool NodeParity::settle_all() {
  std::vector<Verdict> verdicts;
  {
    const std::lock_guard lock(mutex_);
    verdicts = verdicts_;
  }
  bool is_any_settled = false;
  for (const Verdict& verdict : verdicts) is_any_settled = settle(verdict) || is_any_settled;
  drop_verdicts();
  return is_any_settled;
}

void NodeParity::drop_verdicts() {
  std::vector<Verdict> dropped;
  {
    const std::lock_guard lock(mutex_);
    while (verdicts_.size() > kVerdictsMax) {
      const auto oldest = std::ranges::find(verdicts_, false, &Verdict::is_protected);
      if (oldest == verdicts_.end()) break;
      dropped.push_back(std::move(*oldest));
      verdicts_.erase(oldest);
    }
  }
  for (const Verdict& one : dropped) tell(one.handle, false, kOvertaken);
}

// For the other ranks of this node, for collectors, and for the next process. kNotFound: the
// checkpoint was deleted. A mark of protection is durable on return, because older checkpoints go
// for its sake.
Status NodeParity::mark(const Verdict& verdict) {
  const std::string directory = attempt_dir_name(verdict.name);
  const std::string_view name = verdict.is_protected ? kProtectedFile : kUnprotectedFile;
  const auto file = near().create(fmt::format("{}/{}", directory, name), Access::kBuffered);
  if (!file && file.error().code() != ErrorCode::kExists) return std::unexpected(file.error());
  if (file) DF_TRY_VOID((*file)->close());
  return verdict.is_protected ? near().sync_dir(directory) : Status();
}

// False: it was taken back meanwhile, or became another one.
bool NodeParity::note_settled(const Verdict& verdict) {
  const std::size_t settled = std::erase_if(verdicts_, [&](const Verdict& one) {
    return one.name == verdict.name && one.is_protected == verdict.is_protected;
  });
  if (settled == 0 || !verdict.is_protected) return settled > 0;
  protected_ = verdict.name;
  if (!current_ || current_->name != verdict.name) return true;
  current_.reset();
  settings_.hold->hold({});
  return true;
}

// False: the checkpoint can't be marked now.
bool NodeParity::settle(const Verdict& verdict) {
  const Status marked = mark(verdict);
  const bool is_deleted = !marked && marked.error().code() == ErrorCode::kNotFound;
  const bool is_settled = marked || is_deleted;
  bool was_told = false;
  bool is_final = false;
  {
    const std::lock_guard lock(mutex_);
    was_told = std::exchange(is_mark_told_, !is_settled);
    is_final = is_settled && note_settled(verdict);
    changed_.notify_all();
  }
  if (!is_settled) {
    if (!was_told) log_warning("protect: " + marked.error().message());
    return false;
  }
  if (is_final) {
    tell(verdict.handle, verdict.is_protected && !is_deleted,
         is_deleted ? "it was deleted" : kOvertaken);
  }
  return true;
}

// The leader has written it into the checkpoint's directory. Empty: not yet.
std::optional<bool> NodeParity::verdict_of(const AttemptName& name) const {
  const auto entries = near().list(attempt_dir_name(name));
  if (!entries && entries.error().code() == ErrorCode::kNotFound) return false;
  if (!entries) return std::nullopt;
  if (has_name(*entries, kProtectedFile)) return true;
  return has_name(*entries, kUnprotectedFile) ? std::optional(false) : std::nullopt;
}

// Also if nobody waits: a protected checkpoint may be deleted before somebody does.
bool NodeParity::look() {
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::copy_if(entries_, std::back_inserter(entries), &Entry::is_committed);
  }
  const std::size_t before = entries.size();
  settle_known(entries);
  const std::size_t known = entries.size();
  while (entries.size() > kUnprotectedMax) {  // their leader has not said anything for long
    end(entries.front(), false);
    entries.erase(entries.begin());
  }
  return known < before || entries.size() < known;
}

// Leaves those of which nothing is known. Rank 0 begins one at a time, each newer than the one
// before: so those before a protected one are over.
void NodeParity::settle_known(std::vector<Entry>& entries) {
  bool is_overtaken = false;
  std::vector<Entry> left;
  for (const Entry& entry : std::views::reverse(entries)) {
    const auto verdict = verdict_of(entry.name);
    if (!verdict && !is_overtaken) {
      left.insert(left.begin(), entry);
      continue;
    }
    is_overtaken = is_overtaken || verdict.value_or(false);
    end(entry, verdict.value_or(false));
  }
  entries = std::move(left);
}

void NodeParity::end(const Entry& entry, bool is_protected) {
  forget(entry.name);
  tell(entry.handle, is_protected, kOvertaken);
}

}  // namespace deepfreeze
