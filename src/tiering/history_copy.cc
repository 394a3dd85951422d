#include "tiering/history_copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "format/names.h"
#include "manifest/run_records.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> continued_elsewhere(Vfs& from, Vfs& to, std::uint64_t generation) {
  return fail(ErrorCode::kFenced,
              fmt::format("{} is continued by another process: generation {} is claimed there, and "
                          "not by {}. Restore from it to go on, or give this run another tier",
                          to.path_of(""), generation, from.path_of("")));
}

// Claims that do not verify prove nothing, on either side.
Status compare_claims(std::span<const Claim> here, std::span<const Claim> there, Vfs& from,
                      Vfs& to) {
  const std::uint64_t highest = here.empty() ? 0 : here.back().generation;
  for (const Claim& claim : there) {
    if (claim.generation > highest) return continued_elsewhere(from, to, claim.generation);
    const auto own = std::ranges::find(here, claim.generation, &Claim::generation);
    if (own == here.end() || !own->record || !claim.record) continue;
    if (*own->record != *claim.record) return continued_elsewhere(from, to, claim.generation);
  }
  return {};
}

// Another flusher may be faster; its record is compared with the next listing.
Status put_unless_there(TierStore& to, std::string_view name, std::string_view text) {
  const Status put = put_text(to, name, text);
  if (!put && put.error().code() == ErrorCode::kExists) return {};
  return put;
}

// A claim that does not verify is copied as it is: it takes its number there, too.
Status copy_record(Vfs& from, TierStore& to, const std::string& name) {
  DF_TRY(const std::string text, read_file(from, name, kRecordBytesMax));
  return put_unless_there(to, name, text);
}

Result<RunListing> list_or_empty(Vfs& to, const RunRecord& run) {
  auto there = read_run(to);
  if (there || there.error().code() != ErrorCode::kNotFound) return there;
  return RunListing{.run = run, .attempts = {}, .half_deleted = {}, .claims = {}};
}

}  // namespace

Result<RunListing> copy_history(const RunListing& listing, Vfs& from, TierStore& to) {
  Vfs& view = to.view();
  DF_TRY(RunListing there, list_or_empty(view, listing.run));
  if (there.run.run_id != listing.run.run_id) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("{} holds run {}, and {} is run {}: each run needs a tier directory of "
                    "its own",
                    view.path_of(""), there.run.run_id, from.path_of(""), listing.run.run_id));
  }
  if (!compare_claims(listing.claims, there.claims, from, view)) {
    DF_TRY(const std::vector<Claim> now, read_claims(from));  // the listing may be the older one
    DF_TRY_VOID(compare_claims(now, there.claims, from, view));
  }
  const auto names = view.list("");
  if (!names) return std::unexpected(names.error());
  const bool has_run_file = std::ranges::find(*names, kRunFile, &DirEntry::name) != names->end();
  if (!has_run_file) DF_TRY_VOID(put_unless_there(to, kRunFile, encode_run(listing.run)));
  bool has_put = !has_run_file;
  for (const Claim& claim : listing.claims) {
    const auto found = std::ranges::find(there.claims, claim.generation, &Claim::generation);
    if (found != there.claims.end()) continue;
    DF_TRY_VOID(copy_record(from, to, generation_file_name(claim.generation)));
    has_put = true;
  }
  if (has_put) DF_TRY_VOID(to.settle(""));
  return there;
}

Status check_same_history(Vfs& from, Vfs& to) {
  DF_TRY(const std::vector<Claim> there, read_claims(to));  // first: a claim is made here before
  DF_TRY(const std::vector<Claim> here, read_claims(from));
  return compare_claims(here, there, from, to);
}

}  // namespace deepfreeze
