#include "inspect/tier_exam.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "inspect/doctor_words.h"
#include "manifest/history.h"
#include "object/open_object.h"
#include "tiering/flush_plan.h"
#include "tiering/history_copy.h"
#include "tiering/merged_run.h"

namespace deepfreeze {
namespace {

using enum Weight;

constexpr DoctorWords kTierUnreachable{
    "tier_unreachable", kFault, "nothing can be copied to it or read from it",
    "mount it, or correct the path; copying goes on by itself in a program that has the tier"};
constexpr DoctorWords kTierUnread{"tier_unread", kFault,
                                  "what lies there can't be listed, so nothing is copied to it",
                                  "find out why it could not be read, then look again"};
constexpr DoctorWords kTierOfOtherRun{"tier_of_another_run", kFault,
                                      "each run needs a tier directory of its own",
                                      "correct the path, or give this run another directory"};
constexpr DoctorWords kTierReadOnly{"tier_read_only", kFault, "nothing can be copied to it",
                                    "let this user write there, or mount it to be written"};
constexpr DoctorWords kTierFull{"tier_full", kFault, "the next checkpoint has no space there",
                                "free space, or give the tier a keep= that leaves fewer"};
constexpr DoctorWords kTierFenced{
    "tier_fenced", kFault, "another process continues the run there; nothing is copied to it",
    "restore from the tier to go on from there, or give this run another tier"};
constexpr DoctorWords kTierEmpty{"tier_empty", kNote, "it holds nothing of the run yet",
                                 "if something is meant for it, flush copies it"};
constexpr DoctorWords kTierBehind{
    "tier_behind", kNote, "those that are meant for it are lost if the nearer tiers are",
    "a program that has the run open with this tier copies them; so does flush"};
constexpr DoctorWords kCopyBegun{"tier_copy_begun", kNote,
                                 "it is under way, or its process died; no reader counts it",
                                 "the next flush completes it if a nearer tier still has it"};
constexpr DoctorWords kCopyOrphan{
    "tier_copy_orphan", kDebris, "no nearer tier has the checkpoint, so nobody completes it",
    "a program that has the run open with this tier and its own keep= removes it; else delete the "
    "directory by hand"};
constexpr DoctorWords kCopyDamaged{
    "tier_copy_damaged", kFault, "a restore takes this file from another tier that has it whole",
    "such a restore also replaces it; else delete the copy's directory there, then flush "
    "--send-all"};
constexpr DoctorWords kCopyDiffers{
    "tier_copy_differs", kFault, "one of the two was changed after its commit",
    "verify --deep on both; delete the directory of the bad one, then flush --send-all or fetch"};

void reword(Complaint& complaint, const DoctorWords& words) {
  complaint.kind = words.kind;
  complaint.weight = words.weight;
  complaint.means = words.means;
  complaint.remedy = words.remedy;
}

bool is_in_one_of(const std::vector<RunListing>& listings, const AttemptName& name) {
  return std::ranges::any_of(
      listings, [&](const RunListing& listing) { return is_committed_in(listing, name); });
}

// A complaint that a run of its own would have, as it looks from the run that has the tier.
Complaint seen_from_run(Complaint complaint, const std::vector<RunListing>& nearer,
                        const std::string& path) {
  if (complaint.kind == words_for(OddityKind::kUndecided).kind ||
      complaint.kind == words_for(OddityKind::kInDoubt).kind ||
      complaint.kind == words_for(OddityKind::kFenced).kind) {
    const auto name = parse_attempt_dir_name(complaint.place);
    reword(complaint, name && is_in_one_of(nearer, *name) ? kCopyBegun : kCopyOrphan);
  } else if (complaint.kind == words_for_damaged_checkpoint().kind) {
    reword(complaint, kCopyDamaged);
  }
  if (complaint.remedy.starts_with("--")) {
    complaint.remedy = fmt::format("deepfreeze doctor {} {}", path, complaint.remedy);
  }
  complaint.place = path + "/" + complaint.place;
  return complaint;
}

void count_missing(const std::vector<RunListing>& nearer, TierState& state) {
  const std::vector<Manifest> there =
      state.listing ? newest_first(*state.listing) : std::vector<Manifest>();
  if (!there.empty()) state.newest_step = there.front().point.step;
  for (const Manifest& manifest : newest_first(merge(nearer))) {
    if (state.listing && is_committed_in(*state.listing, name_of(manifest))) continue;
    const bool is_newer = there.empty() || older(there.front().point, manifest.point);
    for (CheckpointsCount* counted : {&state.absent, is_newer ? &state.behind : nullptr}) {
      if (counted == nullptr) continue;
      ++counted->count;
      counted->bytes += stored_bytes(manifest);
    }
  }
}

void complain_of_missing(TierState& state) {
  if (state.behind.count == 0) return;
  const std::string newest =
      state.newest_step ? fmt::format("step {}", *state.newest_step) : "none";
  Complaint complaint =
      complaint_of(state.newest_step ? kTierBehind : kTierEmpty, state.path,
                   fmt::format("{} checkpoints are not there; the newest there is {}",
                               state.behind.count, newest));
  complaint.bytes = state.behind.bytes;
  state.complaints.push_back(std::move(complaint));
}

// The next checkpoint is taken to be as large as the newest.
void look_at_space(const std::vector<RunListing>& nearer, TierState& state) {
  const std::vector<Manifest> all = newest_first(merge(nearer));
  if (!state.free_bytes || all.empty()) return;
  const std::uint64_t needed = stored_bytes(all.front());
  if (*state.free_bytes >= needed) return;
  state.complaints.push_back(
      complaint_of(kTierFull, state.path,
                   fmt::format("{} bytes are free, and the newest checkpoint has {}",
                               *state.free_bytes, needed)));
}

void compare_copies(const std::vector<RunListing>& nearer, TierState& state) {
  for (const Manifest& manifest : newest_first(*state.listing)) {
    for (const RunListing& listing : nearer) {
      const auto other =
          std::ranges::find(listing.attempts, name_of(manifest), &AttemptState::name);
      if (other == listing.attempts.end() || !other->committed() || *other->manifest == manifest) {
        continue;
      }
      state.complaints.push_back(complaint_of(
          kCopyDiffers, state.path + "/" + attempt_dir_name(name_of(manifest)),
          fmt::format("its manifest lists {} bytes, and that of a nearer copy {}, or other files",
                      stored_bytes(manifest), stored_bytes(*other->manifest))));
      break;
    }
  }
}

void look_inside_tier(OpenedRun tier, const std::vector<RunListing>& nearer,
                      const ExamSettings& settings, const Watch& watch, TierState& state) {
  const auto found = survey_run(*tier.vfs, tier.listing);
  if (!found) {
    state.complaints.push_back(complaint_of(kTierUnread, state.path, found.error().message()));
    return;
  }
  for (Complaint& complaint : examine(tier, *found, settings, watch)) {
    state.complaints.push_back(seen_from_run(std::move(complaint), nearer, state.path));
  }
}

}  // namespace

TierPlace open_tier_place(const std::string& path) {
  TierPlace place{.path = path, .vfs = open_vfs(path)};
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(path, failed);
  if (!failed) place.free_bytes = space.available;
  return place;
}

TierState examine_tier(const OpenedRun& run, const std::vector<RunListing>& nearer, TierPlace place,
                       const ExamSettings& settings, const Watch& watch) {
  TierState state{.path = place.path, .free_bytes = place.free_bytes};
  const auto complain = [&](const DoctorWords& words, const std::string& detail) {
    state.complaints.push_back(complaint_of(words, state.path, detail));
  };
  if (!place.vfs) {
    complain(kTierUnreachable, place.vfs.error().message());
    count_missing(nearer, state);
    return state;
  }
  Vfs& vfs = **place.vfs;
  const auto listing = read_run(vfs);
  if (listing && listing->run.run_id != run.listing.run.run_id) {
    complain(kTierOfOtherRun, "it holds run " + listing->run.run_id);
    return state;
  }
  if (listing) {
    state.listing = *listing;
  } else if (listing.error().code() != ErrorCode::kNotFound) {
    complain(kTierUnread, listing.error().message());
  }
  const Status writable = vfs.check_writable();
  if (!writable) complain(kTierReadOnly, writable.error().message());
  look_at_space(nearer, state);
  count_missing(nearer, state);
  complain_of_missing(state);
  if (!state.listing) return state;
  const Status same = check_same_history(*run.vfs, vfs);
  if (!same) {
    complain(same.error().code() == ErrorCode::kFenced ? kTierFenced : kTierUnread,
             same.error().message());
  }
  compare_copies(nearer, state);
  look_inside_tier({.path = place.path, .vfs = *std::move(place.vfs), .listing = *state.listing},
                   nearer, settings, watch, state);
  return state;
}

}  // namespace deepfreeze
