#include "manifest/run_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/clock.h"
#include "base/try.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/in_doubt.h"
#include "manifest/name_kind.h"
#include "manifest/node_marker.h"
#include "manifest/record_file.h"
#include "manifest/run_file.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kFailuresToldMax = 3;  // of one attempt, in their own words

// Returns 0 for an entry that cannot be opened: a link, a pipe, a name that no Vfs takes.
std::uint64_t file_bytes(Vfs& vfs, const std::string& name) {
  const auto file = vfs.open_read(name, Access::kBuffered);
  if (!file) return 0;
  return (*file)->size().value_or(0);
}

std::int64_t age_of(Vfs& vfs, const std::string& name) {
  const auto file = vfs.open_read(name, Access::kBuffered);
  if (!file) return 0;
  const auto modified = (*file)->modified_micros();
  return modified ? wall_micros() - *modified : 0;
}

std::set<std::string_view> listed_names(const Manifest& manifest) {
  std::set<std::string_view> names{kManifestFile};
  for (const ManifestFile& file : manifest.files) names.insert(file.name);
  return names;
}

class Survey {
 public:
  Survey(Vfs& vfs, const RunListing& listing) : vfs_(vfs), listing_(listing) {}

  Result<std::vector<Oddity>> take() {
    look_at_run_file();
    look_at_node_file();
    DF_TRY_VOID(look_at_root());
    for (const Claim& claim : listing_.claims) look_at_claim(claim);
    for (const AttemptState& attempt : listing_.attempts) DF_TRY_VOID(look_at_attempt(attempt));
    for (const AttemptName& name : listing_.half_deleted) DF_TRY_VOID(look_at_half_deleted(name));
    return std::move(oddities_);
  }

 private:
  void look_at_run_file();
  void look_at_node_file();
  void look_at_claim(const Claim& claim);
  [[nodiscard]] bool is_own_claim(std::string_view text, std::uint64_t generation) const;
  Status look_at_root();
  Status look_at_attempt(const AttemptState& attempt);
  Status look_at_half_deleted(const AttemptName& name);
  Status look_at_state(const AttemptState& attempt, std::uint64_t bytes);
  Status look_at_undecided(const AttemptName& name, std::uint64_t bytes);
  void look_inside(const AttemptName& name, const std::vector<DirEntry>& entries);
  void add_failures(const AttemptName& name, std::span<const std::string> paths);
  void look_for_unlisted(const Manifest& manifest, const std::vector<DirEntry>& entries);
  void add_temporary(const std::string& name, const std::optional<AttemptName>& attempt);

  std::uint64_t attempt_bytes(const AttemptName& name, const std::vector<DirEntry>& entries);
  Oddity& add(OddityKind kind, std::string name) {
    return oddities_.emplace_back(Oddity{.kind = kind, .name = std::move(name)});
  }
  void add_attempt(OddityKind kind, const AttemptName& name, std::uint64_t bytes,
                   std::string detail = {}) {
    oddities_.push_back({.kind = kind,
                         .name = attempt_dir_name(name),
                         .attempt = name,
                         .bytes = bytes,
                         .detail = std::move(detail)});
  }

  Vfs& vfs_;
  const RunListing& listing_;
  std::vector<Oddity> oddities_;
};

void Survey::look_at_run_file() {
  if (!listing_.run_rebuilt) return;
  const auto found = read_run_file(vfs_);
  if (found) return;  // somebody has mended it meanwhile
  const ErrorCode code = found.error().code();
  OddityKind kind = OddityKind::kRunFileUnread;
  if (code == ErrorCode::kNotFound) kind = OddityKind::kRunFileMissing;
  if (code == ErrorCode::kCorrupt) kind = OddityKind::kRunFileDamaged;
  add(kind, std::string(kRunFile)).detail = found.error().message();
}

void Survey::look_at_node_file() {
  if (!listing_.node || listing_.node->record) return;
  const auto found = read_node(vfs_);
  if (found) return;  // only a moment ago it could not be read
  const bool is_damaged = found.error().code() == ErrorCode::kCorrupt;
  add(is_damaged ? OddityKind::kNodeDamaged : OddityKind::kNodeUnread, std::string(kNodeFile))
      .detail = found.error().message();
}

void Survey::look_at_claim(const Claim& claim) {
  if (claim.record) return;
  const std::string name = generation_file_name(claim.generation);
  const auto text = read_file(vfs_, name, kRecordBytesMax);
  if (!text && text.error().code() != ErrorCode::kCorrupt) {
    add(OddityKind::kClaimUnread, name).detail = text.error().message();
  } else if (!text || !is_own_claim(*text, claim.generation)) {
    add(OddityKind::kClaimDamaged, name);
  }
}

// Reads the claim anew: a moment ago it may only have been unreadable.
bool Survey::is_own_claim(std::string_view text, std::uint64_t generation) const {
  const auto record = decode_generation(text);
  return record && record->generation == generation && record->run_id == listing_.run.run_id;
}

Status Survey::look_at_root() {
  DF_TRY(const std::vector<DirEntry> entries, vfs_.list(""));
  for (const DirEntry& entry : entries) {
    const NameKind kind = kind_in_run(entry);
    if (kind == NameKind::kTemporary) add_temporary(entry.name, {});
    if (kind == NameKind::kForeign) add(OddityKind::kForeign, entry.name);
    if (kind == NameKind::kKeptRunRecord) {
      add(OddityKind::kRunFileKept, entry.name).bytes = file_bytes(vfs_, entry.name);
    }
    if (kind == NameKind::kVoidClaim) {
      add(OddityKind::kClaimVoid, entry.name).bytes = file_bytes(vfs_, entry.name);
    }
  }
  return {};
}

Status Survey::look_at_attempt(const AttemptState& attempt) {
  const auto entries = vfs_.list(attempt_dir_name(attempt.name));
  if (!entries && entries.error().code() != ErrorCode::kNotFound && !attempt.fault) {
    return std::unexpected(entries.error());
  }
  if (!entries && !attempt.fault) return {};
  const std::vector<DirEntry> inside = entries.value_or(std::vector<DirEntry>{});
  if (attempt.committed()) {
    look_for_unlisted(*attempt.manifest, inside);
    if (attempt.given && attempt.given->fault) {
      add_attempt(OddityKind::kTagsUnread, attempt.name, 0, attempt.given->fault->message());
    }
  } else {
    DF_TRY_VOID(look_at_state(attempt, attempt_bytes(attempt.name, inside)));
  }
  look_inside(attempt.name, inside);
  return {};
}

Status Survey::look_at_state(const AttemptState& attempt, std::uint64_t bytes) {
  if (attempt.doubt) {
    add_attempt(OddityKind::kInDoubt, attempt.name, bytes, describe(*attempt.doubt));
    return {};
  }
  if (attempt.undecided()) return look_at_undecided(attempt.name, bytes);
  if (attempt.fault) {
    const bool damaged = attempt.fault->code() == ErrorCode::kCorrupt;
    add_attempt(damaged ? OddityKind::kManifestDamaged : OddityKind::kManifestUnread, attempt.name,
                bytes, attempt.fault->message());
  } else {
    add_attempt(OddityKind::kAborted, attempt.name, bytes);
  }
  return {};
}

Status Survey::look_at_undecided(const AttemptName& name, std::uint64_t bytes) {
  DF_TRY(const auto identity, fenced_identity(vfs_, listing_.run.run_id, name));
  if (!identity) {
    add_attempt(OddityKind::kUndecided, name, bytes);
  } else {
    add_attempt(OddityKind::kFenced, name, bytes,
                fmt::format("of generation {}, and {} has been claimed", identity->generation,
                            listing_.claims.empty() ? 0 : listing_.claims.back().generation));
  }
  return {};
}

Status Survey::look_at_half_deleted(const AttemptName& name) {
  const auto entries = vfs_.list(attempt_dir_name(name));
  if (!entries && entries.error().code() == ErrorCode::kNotFound) return {};
  if (!entries) return std::unexpected(entries.error());
  add_attempt(OddityKind::kHalfDeleted, name, attempt_bytes(name, *entries));
  look_inside(name, *entries);
  return {};
}

// Thousands of ranks may all have failed, and for the same reason: only the first few are told.
void Survey::add_failures(const AttemptName& name, std::span<const std::string> paths) {
  for (const std::string& path : paths.first(std::min(paths.size(), kFailuresToldMax))) {
    Oddity& failed = add(OddityKind::kRankFailed, path);
    failed.attempt = name;
    failed.detail = read_file(vfs_, path, kFailureTextBytesMax).value_or("");
  }
  if (paths.size() <= kFailuresToldMax) return;
  Oddity& rest = add(OddityKind::kRankFailed, attempt_dir_name(name));
  rest.attempt = name;
  rest.detail = fmt::format("and {} more", paths.size() - kFailuresToldMax);
}

void Survey::look_inside(const AttemptName& name, const std::vector<DirEntry>& entries) {
  std::vector<std::string> failures;
  for (const DirEntry& entry : entries) {
    const std::string path = join_name(attempt_dir_name(name), entry.name);
    const NameKind kind = kind_in_attempt(entry);
    if (kind == NameKind::kTemporary) add_temporary(path, name);
    if (kind == NameKind::kForeign) add(OddityKind::kForeignInside, path).attempt = name;
    if (kind == NameKind::kKeptManifest) {
      Oddity& kept = add(OddityKind::kManifestKept, path);
      kept.attempt = name;
      kept.bytes = file_bytes(vfs_, path);
    }
    if (kind == NameKind::kFailedPart) failures.push_back(path);
  }
  add_failures(name, failures);
}

void Survey::look_for_unlisted(const Manifest& manifest, const std::vector<DirEntry>& entries) {
  const std::set<std::string_view> listed = listed_names(manifest);
  const AttemptName name{manifest.point.step, manifest.point.attempt_id};
  for (const DirEntry& entry : entries) {
    const NameKind kind = kind_in_attempt(entry);
    const bool is_part = kind == NameKind::kPart || kind == NameKind::kSealedPart;
    if (!is_part || listed.contains(entry.name)) continue;
    const std::string path = join_name(attempt_dir_name(name), entry.name);
    Oddity& unlisted = add(OddityKind::kUnlisted, path);
    unlisted.attempt = name;
    unlisted.bytes = file_bytes(vfs_, path);
  }
}

void Survey::add_temporary(const std::string& name, const std::optional<AttemptName>& attempt) {
  oddities_.push_back({.kind = OddityKind::kTemporary,
                       .name = name,
                       .attempt = attempt,
                       .bytes = file_bytes(vfs_, name),
                       .age_micros = age_of(vfs_, name)});
}

std::uint64_t Survey::attempt_bytes(const AttemptName& name, const std::vector<DirEntry>& entries) {
  std::uint64_t bytes = 0;
  for (const DirEntry& entry : entries) {
    bytes += file_bytes(vfs_, join_name(attempt_dir_name(name), entry.name));
  }
  return bytes;
}

}  // namespace

Result<std::vector<Oddity>> survey_run(Vfs& vfs, const RunListing& listing) {
  return Survey(vfs, listing).take();
}

Result<std::vector<std::string>> unlisted_names(Vfs& vfs, const Manifest& manifest) {
  const AttemptName attempt{manifest.point.step, manifest.point.attempt_id};
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(attempt_dir_name(attempt)));
  const std::set<std::string_view> listed = listed_names(manifest);
  std::vector<std::string> names;
  for (const DirEntry& entry : entries) {
    const NameKind kind = kind_in_attempt(entry);
    const bool is_known = listed.contains(entry.name) || kind == NameKind::kTags ||
                          kind == NameKind::kParity || kind == NameKind::kParityMark;
    if (!is_known) names.push_back(entry.name);
  }
  return names;
}

}  // namespace deepfreeze
