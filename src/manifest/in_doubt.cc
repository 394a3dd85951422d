#include "manifest/in_doubt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/node_files.h"
#include "manifest/node_marker.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

bool names_a_node(const Claim& claim) { return claim.record && claim.record->node; }

// A directory of a node, or one that was; otherwise each directory decides for itself.
bool is_of_a_node(const DecidersView& here) {
  return here.node || std::ranges::any_of(here.claims, names_a_node);
}

// A directory without digits of its own is none that a claim names.
bool gives_right(const DecidersView& here, const Claim& claim) {
  if (!claim.record) return false;
  if (!claim.record->node) return true;
  return here.node && here.node->record && here.node->record->node == *claim.record->node;
}

const Claim* find_claim(std::span<const Claim> claims, std::uint64_t generation) {
  const auto found = std::ranges::find(claims, generation, &Claim::generation);
  return found == claims.end() ? nullptr : &*found;
}

std::string directory_of(const Question& question) {
  return attempt_dir_name(attempt_of(question.identity));
}

// Whether this directory has the claim under which the attempt was begun, and that names it.
bool is_own_claim(const Claim* claim, const Question& question) {
  return claim != nullptr && claim->record && claim->record->node == question.node &&
         claim->record->run_id == question.identity.run_id;
}

// It was never begun here, or has been aborted or deleted: its files are gone or go.
Result<std::string> answer_that_it_is_gone(Vfs& vfs, const Question& question, bool is_listed) {
  // The deletion may not be durable yet, and a power cut must not take it back.
  const Status synced = is_listed ? vfs.sync_dir(directory_of(question)) : Status{};
  if (!synced && synced.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(synced.error());
  }
  DF_TRY_VOID(vfs.sync_dir(""));
  return encode_manifest(aborted_outcome(question.identity));
}

// Empty if there is none yet, or it does not verify.
Result<std::optional<std::string>> recorded_outcome(Vfs& vfs, const Question& question) {
  const std::string directory = directory_of(question);
  const AttemptName name = attempt_of(question.identity);
  if (!read_manifest(vfs, name, question.identity.run_id)) return std::nullopt;
  DF_TRY(std::string text, read_file(vfs, join_name(directory, kManifestFile), kManifestBytesMax));
  // Its process may have died between its rename and its sync.
  DF_TRY_VOID(vfs.sync_dir(directory));
  return text;
}

// The process that aborted it may have known no more than the attempt's name.
Status check_is_of(const Manifest& manifest, const Question& question) {
  const Manifest asked = aborted_outcome(question.identity);
  const bool is_attempt = manifest.run_id == asked.run_id &&
                          manifest.point.step == asked.point.step &&
                          manifest.point.attempt_id == asked.point.attempt_id;
  const bool is_point = manifest.point == asked.point && manifest.world_size == asked.world_size;
  if (is_attempt && (is_point || manifest.outcome == Outcome::kAborted)) return {};
  return fail(ErrorCode::kMismatch, "the outcome is of another attempt");
}

Status check_file(Vfs& vfs, const std::string& directory, const ManifestFile& listed) {
  const std::string path = join_name(directory, listed.name);
  const auto part = read_part_header(vfs, path);
  if (!part && part.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kIncomplete, vfs.path_of(path) + " is missing");
  }
  if (!part) return std::unexpected(part.error());
  if (part->file_bytes == listed.bytes && part->crc == listed.header_crc) return {};
  return fail(ErrorCode::kMismatch, vfs.path_of(path) + " is not the file that was committed");
}

// Every sealed file that is here is listed as it is, and no rank of this node lacks one.
Result<std::vector<ManifestFile>> check_files(Vfs& vfs, const Manifest& manifest,
                                              const std::string& directory) {
  if (manifest.outcome == Outcome::kAborted) return std::vector<ManifestFile>();
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(directory));
  std::vector<ManifestFile> files = files_of_node(manifest, entries);
  for (const DirEntry& entry : entries) {
    if (!parse_sealed_file_name(entry.name)) continue;
    if (std::ranges::find(files, entry.name, &ManifestFile::name) != files.end()) continue;
    return fail(ErrorCode::kMismatch,
                vfs.path_of(join_name(directory, entry.name)) + " was not committed");
  }
  if (files.empty()) return fail(ErrorCode::kIncomplete, vfs.path_of(directory) + " has no file");
  for (const ManifestFile& file : files) DF_TRY_VOID(check_file(vfs, directory, file));
  return files;
}

}  // namespace

std::optional<Doubt> doubt_about(const DecidersView& here,
                                 const std::optional<Identity>& identity) {
  if (!is_of_a_node(here)) return std::nullopt;
  if (!identity) {
    const bool decides_all = std::ranges::all_of(
        here.claims, [&](const Claim& claim) { return gives_right(here, claim); });
    return decides_all ? std::nullopt : std::optional(Doubt{});
  }
  const Claim* claim = find_claim(here.claims, identity->generation);
  if (claim != nullptr && gives_right(here, *claim)) return std::nullopt;
  Doubt doubt{.identity = identity, .node = {}};
  if (claim != nullptr && claim->record) doubt.node = claim->record->node;
  return doubt;
}

Result<std::optional<Doubt>> find_doubt(Vfs& vfs, const DecidersView& here,
                                        const AttemptName& name) {
  if (!is_of_a_node(here)) return std::nullopt;
  const auto entries = vfs.list(attempt_dir_name(name));
  if (!entries && entries.error().code() == ErrorCode::kNotFound) return std::nullopt;
  if (!entries) return std::unexpected(entries.error());
  const bool has_sealed = std::ranges::any_of(*entries, [](const DirEntry& entry) {
    return parse_sealed_file_name(entry.name).has_value();
  });
  if (!has_sealed) return std::nullopt;
  return doubt_about(here, find_identity(vfs, name));
}

std::string describe(const Doubt& doubt) {
  if (!doubt.node) return "in doubt: no claim here tells which node decides";
  return fmt::format("in doubt: node {} decides", hex64(*doubt.node));
}

std::vector<Question> questions(const RunListing& listing) {
  std::vector<Question> asked;
  for (const AttemptState& attempt : listing.attempts) {
    if (!attempt.doubt || !attempt.doubt->identity || !attempt.doubt->node) continue;
    asked.push_back({.identity = *attempt.doubt->identity, .node = *attempt.doubt->node});
  }
  return asked;
}

Result<std::optional<std::string>> answer(Vfs& vfs, const Question& question) {
  DF_TRY(const Deciders here, read_deciders(vfs));
  const bool is_asked = here.node && here.node->record && here.node->record->node == question.node;
  if (!is_asked) return std::nullopt;
  const auto entries = vfs.list(directory_of(question));
  const bool is_listed = entries.has_value();
  if (!is_listed && entries.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(entries.error());
  }
  if (is_listed && !has_name(*entries, kDeletedManifestFile)) {
    return recorded_outcome(vfs, question);
  }
  // A directory that was put back from an older copy has the digits, but not the claim.
  if (!is_own_claim(find_claim(here.claims, question.identity.generation), question)) {
    return std::nullopt;
  }
  return answer_that_it_is_gone(vfs, question, is_listed);
}

Result<Manifest> place_answer(Vfs& vfs, const Question& question, std::string_view text) {
  DF_TRY(const Manifest manifest, decode_manifest(text));
  DF_TRY_VOID(check_is_of(manifest, question));
  DF_TRY(const std::vector<ManifestFile> here, check_files(vfs, manifest, directory_of(question)));
  DF_TRY_VOID(place_decided(vfs, {.manifest = manifest, .text = std::string(text), .here = here}));
  return manifest;
}

}  // namespace deepfreeze
