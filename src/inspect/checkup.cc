#include "inspect/checkup.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "format/names.h"
#include "manifest/in_doubt.h"
#include "manifest/node_files.h"
#include "manifest/record_file.h"
#include "manifest/run_survey.h"
#include "protect/verify_parity.h"

namespace deepfreeze {
namespace {

bool is_bad(const Finding& finding) { return !finding.faults.empty(); }

Result<std::vector<Fault>> verify_watched(Vfs& vfs, const Manifest& manifest,
                                          const CheckSettings& settings, const Watch& watch) {
  const std::string label = fmt::format("{} step {}", settings.verb, manifest.point.step);
  return verify_attempt(vfs, manifest,
                        {.check_tree = settings.deep,
                         .one_node_only = settings.is_of_several_nodes,
                         .readings = settings.readings,
                         .thread_count = settings.thread_count,
                         .on_progress = watch(label, stored_bytes(manifest))});
}

Result<NodeFiles> files_to_read(Vfs& vfs, const Manifest& manifest, bool is_of_several_nodes) {
  if (!is_of_several_nodes) return NodeFiles{.manifest = manifest};
  auto own = list_node_files(vfs, manifest);
  if (own || own.error().code() != ErrorCode::kNotFound) return own;
  return fail(ErrorCode::kGone, own.error().message());
}

// Other nodes need it if this one's neighbours are lost.
void verify_own_parity(Vfs& vfs, const Manifest& manifest, Finding& finding) {
  const auto entries = vfs.list(finding.directory);
  if (!entries) return;  // it was removed meanwhile, or verify_attempt() has told
  for (const DirEntry& entry : *entries) {
    if (!is_parity_file_name(entry.name)) continue;
    const Status whole = verify_parity(vfs, join_name(finding.directory, entry.name), manifest);
    const bool is_removed = !whole && (whole.error().code() == ErrorCode::kNotFound ||
                                       whole.error().code() == ErrorCode::kGone);  // meanwhile
    if (!whole && !is_removed) finding.faults.push_back(fault_of_error(entry.name, whole.error()));
  }
}

Status look_at_headers(Vfs& vfs, const NodeFiles& own, Finding& finding) {
  DF_TRY(HeaderCheck check, verify_headers(vfs, own.manifest, own.elsewhere > 0));
  finding.files = own.manifest.files.size();
  finding.faults = std::move(check.faults);
  finding.without_checksum = std::move(check.without_checksum);
  return {};
}

// Fills in the facts about a committed attempt. kGone: it was removed meanwhile.
Status read_committed(Vfs& vfs, const Manifest& manifest, CheckSettings settings,
                      const Watch& watch, Finding& finding) {
  finding.point = manifest.point;
  DF_TRY(const NodeFiles own, files_to_read(vfs, manifest, settings.is_of_several_nodes));
  settings.is_of_several_nodes = own.elsewhere > 0;
  finding.files_elsewhere = own.elsewhere;
  finding.bytes = stored_bytes(own.manifest);
  if (settings.fast) return look_at_headers(vfs, own, finding);
  DF_TRY(finding.faults, verify_watched(vfs, own.manifest, settings, watch));
  verify_own_parity(vfs, manifest, finding);
  if (!settings.deep) return {};
  auto unlisted = unlisted_names(vfs, manifest);
  if (unlisted) {
    finding.unlisted = std::move(*unlisted);
  } else if (unlisted.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kGone, unlisted.error().message());
  } else {
    finding.faults.push_back(fault_of_error(finding.directory, unlisted.error()));
  }
  return {};
}

Verdict verdict_of(const std::vector<Fault>& faults) {
  if (faults.empty()) return Verdict::kGood;
  return std::ranges::all_of(faults, &Fault::unread) ? Verdict::kUnread : Verdict::kFault;
}

}  // namespace

bool Findings::good() const { return records.empty() && std::ranges::none_of(attempts, is_bad); }

std::size_t Findings::bad_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(attempts, is_bad));
}

Result<Verdict> check_attempt(Vfs& vfs, const AttemptState& attempt, const CheckSettings& settings,
                              const Watch& watch, Findings& findings) {
  Finding finding{.directory = attempt_dir_name(attempt.name), .point = {}};
  if (attempt.doubt) {
    findings.notes.push_back(finding.directory + ": " + describe(*attempt.doubt) +
                             "; deepfreeze doctor says what to do");
    return Verdict::kNothing;
  }
  if (attempt.undecided()) {
    findings.notes.push_back(finding.directory + ": no outcome yet; half-written or in progress");
    return Verdict::kNothing;
  }
  if (attempt.fault) {
    finding.faults.push_back(fault_of_error(std::string(kManifestFile), *attempt.fault));
  } else if (attempt.committed()) {
    const Status read = read_committed(vfs, *attempt.manifest, settings, watch, finding);
    if (!read && read.error().code() == ErrorCode::kGone) {
      findings.notes.push_back(finding.directory + ": removed meanwhile");
      return Verdict::kNothing;
    }
    if (!read) return std::unexpected(read.error().within(finding.directory));
    if (finding.files_elsewhere > 0) {
      findings.notes.push_back(
          fmt::format("{}: {} of {} files are on other nodes, and were not read", finding.directory,
                      finding.files_elsewhere, attempt.manifest->files.size()));
    }
  } else {
    return Verdict::kNothing;  // aborted: it promises nothing
  }
  findings.attempts.push_back(std::move(finding));
  return verdict_of(findings.attempts.back().faults);
}

void check_records(const RunListing& listing, Findings& findings) {
  if (listing.run_rebuilt) {
    findings.records.push_back(
        {.file = std::string(kRunFile),
         .cause = "lost or damaged; the next writer rebuilds it from a manifest"});
  }
  for (const Claim& claim : listing.claims) {
    if (claim.record) continue;
    findings.records.push_back({.file = generation_file_name(claim.generation),
                                .cause = "does not verify; the step that it resumed from is lost"});
  }
  for (const AttemptName& name : listing.half_deleted) {
    findings.notes.push_back(attempt_dir_name(name) + ": half deleted; the next gc finishes it");
  }
}

void add_fast_notes(Findings& findings) {
  std::size_t files = 0;
  std::size_t without = 0;
  for (const Finding& finding : findings.attempts) {
    files += finding.files;
    without += finding.without_checksum.size();
  }
  if (without < files) {
    findings.notes.push_back(fmt::format(
        "the data of {} of {} files was not read: the store's word was taken for its checksum, so "
        "bytes that rot there while the store tells their former checksum go unnoticed",
        files - without, files));
  }
  if (without > 0) {
    findings.notes.push_back(
        fmt::format("the data of {} of {} files was not read: no checksum is kept there, size only "
                    "(and their headers)",
                    without, files));
  }
}

void add_device_note(const std::string& path, Findings& findings) {
  if (path.empty()) return;
  findings.notes.push_back(path +
                           ": its file system takes no direct reads; its cached pages were dropped "
                           "first, as far as the kernel does that");
}

}  // namespace deepfreeze
