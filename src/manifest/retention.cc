#include "manifest/retention.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/given_tags.h"
#include "manifest/history.h"
#include "manifest/ranking.h"
#include "manifest/run_records.h"

namespace deepfreeze {
namespace {

struct Candidate {
  Manifest manifest;
  bool on_line = false;
  bool kept = false;
};

bool has_rule(const Keep& keep) { return keep.last || keep.every || keep.best; }

std::size_t last_count(const Keep& keep) { return std::max<std::size_t>(1, keep.last.value_or(1)); }

// Newest first.
std::vector<Candidate> list_candidates(const RunListing& listing,
                                       EarlierLines earlier = EarlierLines::kStay) {
  const CurrentLine line(listing);
  std::vector<Candidate> candidates;
  for (Manifest& manifest : newest_first(listing)) {
    const bool on_line = line.contains(manifest.point);
    const bool stays = earlier == EarlierLines::kStay && line.is_earlier(manifest.point);
    const bool kept = stays || !line.knows(manifest.point);
    candidates.push_back({.manifest = std::move(manifest), .on_line = on_line, .kept = kept});
  }
  return candidates;
}

// Keeps the newest `last` of the line, and each abandoned one with fewer of the line above it.
void keep_newest(std::vector<Candidate>& candidates, std::size_t last) {
  std::size_t newer_on_line = 0;
  for (Candidate& candidate : candidates) {
    if (newer_on_line < last) candidate.kept = true;
    if (candidate.on_line) ++newer_on_line;
  }
}

void keep_every(std::vector<Candidate>& candidates, std::uint64_t every) {
  for (Candidate& candidate : candidates) {
    if (candidate.on_line && candidate.manifest.point.step % every == 0) candidate.kept = true;
  }
}

bool is_non_finite(const Manifest& manifest) { return manifest.non_finite.value_or(0) > 0; }

// Checkpoints with NaN must not push out the last one without.
void keep_finite(std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) {
    if (!candidate.on_line || is_non_finite(candidate.manifest)) continue;
    candidate.kept = true;
    return;
  }
}

void keep_best(std::vector<Candidate>& candidates, const Keep::Best& best) {
  std::vector<Measured> measured;
  for (const Candidate& candidate : candidates) {
    measured.push_back({.metrics = &candidate.manifest.annotations.metrics,
                        .on_line = candidate.on_line,
                        .non_finite = is_non_finite(candidate.manifest)});
  }
  for (const std::size_t place : ranked(measured, best) | std::views::take(best.count)) {
    candidates[place].kept = true;
  }
}

AttemptName name_of(const Manifest& manifest) {
  return {manifest.point.step, manifest.point.attempt_id};
}

void keep_attempt(std::vector<Candidate>& candidates, const AttemptName& name) {
  const auto found = std::ranges::find(
      candidates, name, [](const Candidate& candidate) { return name_of(candidate.manifest); });
  if (found != candidates.end()) found->kept = true;
}

// They stay beside those that the rules keep, and push out none of them.
void keep_tagged(std::vector<Candidate>& candidates, const RunListing& listing) {
  for (const AttemptState& attempt : listing.attempts) {
    if (is_tagged(attempt)) keep_attempt(candidates, attempt.name);
  }
}

// Newest first, of those that have parity.
std::vector<const AttemptState*> list_with_parity(const RunListing& listing) {
  std::vector<const AttemptState*> found;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed() && attempt.has_parity) found.push_back(&attempt);
  }
  std::ranges::sort(found, [](const AttemptState* a, const AttemptState* b) {
    return older(b->manifest->point, a->manifest->point);
  });
  return found;
}

// Other nodes may need them until a newer one is protected: the newest of the line that all nodes
// have protected, the newest such one without NaN, and newer ones that may have the mark elsewhere,
// or get it yet. If none of the line is protected, the newest protected one of all.
void keep_protected(std::vector<Candidate>& candidates, const RunListing& listing) {
  const std::vector<const AttemptState*> with_parity = list_with_parity(listing);
  const auto keep_first = [&](const auto& is_wanted) {
    const auto found = std::ranges::find_if(with_parity, is_wanted);
    if (found != with_parity.end()) keep_attempt(candidates, (*found)->name);
    return found != with_parity.end();
  };
  const CurrentLine line(listing);
  const auto is_marked = [](const AttemptState* one) { return one->is_protected; };
  const auto is_on_line = [&](const AttemptState* one) {
    return one->is_protected && line.contains(one->manifest->point);
  };
  keep_first(
      [&](const AttemptState* one) { return is_on_line(one) && !is_non_finite(*one->manifest); });
  if (!keep_first(is_on_line)) keep_first(is_marked);
  for (const AttemptState* const one : with_parity) {
    if (is_on_line(one)) return;
    if (!one->is_protected && !one->is_given_up) keep_attempt(candidates, one->name);
  }
}

std::vector<AttemptName> expired_committed(const RunListing& listing, const Keep& keep,
                                           EarlierLines earlier) {
  if (!has_rule(keep)) return {};
  std::vector<Candidate> candidates = list_candidates(listing, earlier);
  keep_newest(candidates, last_count(keep));
  if (keep.every.value_or(0) != 0) keep_every(candidates, *keep.every);
  if (keep.best) keep_best(candidates, *keep.best);
  keep_finite(candidates);
  keep_tagged(candidates, listing);
  keep_protected(candidates, listing);
  std::vector<AttemptName> names;
  for (auto it = candidates.rbegin(); it != candidates.rend(); ++it) {
    if (!it->kept) names.push_back(name_of(it->manifest));
  }
  return names;
}

// An attempt in doubt as if it were committed. Its metrics are in another node's file.
Manifest as_committed(const Identity& identity) {
  Manifest manifest = aborted_outcome(identity);
  manifest.outcome = Outcome::kCommitted;
  return manifest;
}

// Whether the rules would let the attempt go if it were committed. Others that are in doubt don't
// count.
bool would_go(const RunListing& listing, const AttemptState& attempt, const Keep& keep,
              EarlierLines earlier) {
  const Manifest manifest = as_committed(*attempt.doubt->identity);
  // Nobody here knows whether it is among the best.
  if (keep.best && on_current_line(listing, manifest.point)) return false;
  RunListing as_if = listing;
  std::ranges::find(as_if.attempts, attempt.name, &AttemptState::name)->manifest = manifest;
  const std::vector<AttemptName> gone = expired_committed(as_if, keep, earlier);
  return std::ranges::find(gone, attempt.name) != gone.end();
}

// Only older generations: the present one may still get its answers. A directory without
// digits of its own, such as a farther tier, gives nothing in doubt up.
std::vector<AttemptName> expired_in_doubt(const RunListing& listing, const Keep& keep,
                                          EarlierLines earlier) {
  std::vector<AttemptName> names;
  if (!listing.node || !listing.node->record) return names;
  const std::uint64_t highest = highest_generation(listing);
  for (const AttemptState& attempt : listing.attempts) {
    if (!attempt.doubt || !attempt.doubt->identity) continue;
    if (attempt.doubt->identity->generation >= highest) continue;
    if (would_go(listing, attempt, keep, earlier)) names.push_back(attempt.name);
  }
  return names;
}

std::uint64_t manifest_bytes(const RunListing& listing, const AttemptName& name) {
  const auto found = std::ranges::find(listing.attempts, name, &AttemptState::name);
  if (found == listing.attempts.end() || !found->manifest) return 0;
  return stored_bytes(*found->manifest);
}

}  // namespace

std::vector<AttemptName> expired(const RunListing& listing, const Keep& keep,
                                 EarlierLines earlier) {
  std::vector<AttemptName> names;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.manifest && !attempt.committed()) names.push_back(attempt.name);
  }
  std::ranges::copy(expired_committed(listing, keep, earlier), std::back_inserter(names));
  std::ranges::copy(expired_in_doubt(listing, keep, earlier), std::back_inserter(names));
  return names;
}

// A process may have died between renaming the manifest of the newest step and syncing it: we would
// see it, and a power cut would take it back. Nothing older is deleted before it is durable.
Status settle_newest(Vfs& vfs, const RunListing& listing, std::size_t last) {
  const CurrentLine line(listing);
  std::size_t settled = 0;
  bool has_finite = false;
  for (const Manifest& manifest : newest_first(listing)) {
    if (settled >= last && has_finite) break;
    const bool finite = !is_non_finite(manifest);
    if (!line.contains(manifest.point) || (settled >= last && !finite)) continue;
    DF_TRY_VOID(vfs.sync_dir(attempt_dir_name(name_of(manifest))));
    ++settled;
    has_finite = has_finite || finite;
  }
  return {};
}

namespace {

// Makes the best checkpoints durable likewise: for their sake others are deleted that may be better
// than all that would remain without them.
Status settle_best(Vfs& vfs, const RunListing& listing, const Keep& keep) {
  if (!keep.best) return {};
  std::vector<Candidate> candidates = list_candidates(listing);
  for (Candidate& candidate : candidates) candidate.kept = false;
  keep_best(candidates, *keep.best);
  for (const Candidate& candidate : candidates) {
    if (candidate.kept) DF_TRY_VOID(vfs.sync_dir(attempt_dir_name(name_of(candidate.manifest))));
  }
  return {};
}

Status settle_kept(Vfs& vfs, const RunListing& listing, const Keep& keep) {
  DF_TRY_VOID(settle_newest(vfs, listing, last_count(keep)));
  return settle_best(vfs, listing, keep);
}

}  // namespace

Status delete_checkpoint(Vfs& vfs, const AttemptName& name) {
  DF_TRY(RunListing remaining, read_run(vfs));
  std::erase_if(remaining.attempts, [&](const AttemptState& one) { return one.name == name; });
  DF_TRY_VOID(settle_newest(vfs, remaining, 1));
  return remove_attempt(vfs, name);
}

namespace {

std::vector<AttemptName> to_delete(const RunListing& listing, const Keep& keep,
                                   const Collection& how) {
  std::vector<AttemptName> names = expired(listing, keep, how.earlier);
  const std::vector<AttemptName> held = how.held ? how.held(listing) : std::vector<AttemptName>();
  std::erase_if(
      names, [&](const AttemptName& name) { return std::ranges::find(held, name) != held.end(); });
  names.insert(names.begin(), listing.half_deleted.begin(), listing.half_deleted.end());
  return names;
}

// Whether it was given a tag since the run was listed, or its parity was begun, or that can't be
// told. Asked right before it goes: a moment remains. A tag that comes in it is refused
// (given_tags.cc, step 4) or goes with its checkpoint; so does parity, which is one lost node to
// the others. The process that writes parity holds its checkpoint (Collection::held).
bool is_needed_now(Vfs& vfs, const RunListing& listing, const AttemptName& name) {
  const auto listed = std::ranges::find(listing.attempts, name, &AttemptState::name);
  if (listed == listing.attempts.end() || !listed->committed()) return false;
  const auto entries = vfs.list(attempt_dir_name(name));
  if (!entries) return entries.error().code() != ErrorCode::kNotFound;
  if (!listed->has_parity && shows_parity(*entries)) return true;
  if (!has_tag_record(*entries)) return false;
  const std::optional<GivenTags> given = read_given_tags(vfs, name, *entries);
  return given && (given->fault || !given->tags.empty());
}

// Moves the attempts in doubt out of `names`.
std::vector<AttemptState> take_in_doubt(const RunListing& listing,
                                        std::vector<AttemptName>& names) {
  std::vector<AttemptState> taken;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.doubt && std::erase(names, attempt.name) > 0) taken.push_back(attempt);
  }
  return taken;
}

// Aborted first, so that no answer is placed beside files that go. False if an answer was faster,
// or another collector.
Result<bool> remove_in_doubt(Vfs& vfs, const AttemptState& attempt) {
  const auto outcome = abort_attempt(vfs, aborted_outcome(*attempt.doubt->identity));
  if (!outcome && outcome.error().code() == ErrorCode::kNotFound) return false;
  if (!outcome) return std::unexpected(outcome.error());
  if (outcome->outcome == Outcome::kCommitted) return false;
  DF_TRY_VOID(remove_attempt(vfs, attempt.name));
  return true;
}

// Attempts in doubt come last: an "aborted" needs room. `names` keeps only those that went.
Status remove_all(Vfs& vfs, const RunListing& listing, std::vector<AttemptName>& names) {
  const std::vector<AttemptState> in_doubt = take_in_doubt(listing, names);
  std::vector<AttemptName> spared;
  const auto may_go = [&](const AttemptName& name) {
    if (!is_needed_now(vfs, listing, name)) return true;
    spared.push_back(name);
    return false;
  };
  if (!names.empty()) DF_TRY_VOID(remove_attempts(vfs, names, may_go));
  std::erase_if(names, [&](const AttemptName& name) {
    return std::ranges::find(spared, name) != spared.end();
  });
  for (const AttemptState& attempt : in_doubt) {
    DF_TRY(const bool is_gone, remove_in_doubt(vfs, attempt));
    if (is_gone) names.push_back(attempt.name);
  }
  return {};
}

}  // namespace

Result<GarbageReport> collect_garbage(Vfs& vfs, const Keep& keep, const Collection& how) {
  DF_TRY(const RunListing listing, read_run(vfs));
  std::vector<AttemptName> names = to_delete(listing, keep, how);
  GarbageReport report;
  if (!how.dry_run && !names.empty()) {
    const Status settled = settle_kept(vfs, listing, keep);
    // Another collector has gone further than this listing: the rest is for it.
    if (!settled && settled.error().code() == ErrorCode::kNotFound) return report;
    DF_TRY_VOID(settled);
    DF_TRY_VOID(remove_all(vfs, listing, names));
  }
  for (const AttemptName& name : names) report.bytes_freed += manifest_bytes(listing, name);
  report.removed = std::move(names);
  return report;
}

}  // namespace deepfreeze
