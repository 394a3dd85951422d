#include "manifest/run_records.h"

#include <algorithm>
#include <tuple>

#include "base/try.h"
#include "manifest/given_tags.h"
#include "manifest/node_marker.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

struct RootNames {
  std::vector<AttemptName> attempts;
  std::vector<std::uint64_t> generations;
  bool has_node = false;  // node.json
};

struct Pass {
  RunRecords records;
  std::vector<AttemptName> gone;  // vanished or half deleted
};

bool by_step(const AttemptName& a, const AttemptName& b) {
  return std::tie(a.step, a.attempt_id) < std::tie(b.step, b.attempt_id);
}

Result<RootNames> list_root(Vfs& vfs) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  RootNames names;
  for (const DirEntry& entry : entries) {
    if (const auto attempt = parse_attempt_dir_name(entry.name); attempt && entry.is_directory) {
      names.attempts.push_back(*attempt);
    } else if (const auto generation = parse_generation_file_name(entry.name)) {
      names.generations.push_back(*generation);
    } else if (entry.name == kNodeFile) {
      names.has_node = true;
    }
  }
  std::ranges::sort(names.attempts, by_step);
  std::ranges::sort(names.generations);
  return names;
}

bool has_sealed_part(const std::vector<DirEntry>& entries) {
  return std::ranges::any_of(entries, [](const DirEntry& entry) {
    return parse_sealed_file_name(entry.name).has_value();
  });
}

}  // namespace

bool shows_parity(const std::vector<DirEntry>& entries) {
  return std::ranges::any_of(entries, [](const DirEntry& entry) {
    return is_parity_file_name(entry.name) || is_unfinished_parity_name(entry.name);
  });
}

namespace {

// Only a deletion makes an attempt or its manifest go away.
Status add_attempt(Vfs& vfs, const AttemptName& name, Pass& pass) {
  const auto entries = vfs.list(attempt_dir_name(name));
  if (!entries && entries.error().code() != ErrorCode::kNotFound) {
    pass.records.attempts.push_back({.name = name, .manifest = {}, .fault = entries.error()});
    return {};
  }
  if (!entries || has_name(*entries, kDeletedManifestFile)) {
    pass.gone.push_back(name);
    if (entries) pass.records.half_deleted.push_back(name);
    return {};
  }
  AttemptState state{.name = name, .manifest = {}, .fault = {}};
  state.has_sealed = has_sealed_part(*entries);
  state.has_parity = shows_parity(*entries);
  state.is_protected = has_name(*entries, kProtectedFile);
  state.is_given_up = !state.is_protected && has_name(*entries, kUnprotectedFile);
  if (has_name(*entries, kManifestFile)) {
    auto manifest = read_manifest(vfs, name, "");
    if (manifest) {
      state.manifest = std::move(*manifest);
    } else if (manifest.error().code() == ErrorCode::kUnsupported) {
      return std::unexpected(std::move(manifest).error());
    } else if (manifest.error().code() == ErrorCode::kNotFound) {
      pass.gone.push_back(name);
      return {};
    } else {
      state.fault = std::move(manifest).error();
    }
  }
  if (state.committed()) state.given = read_given_tags(vfs, name, *entries);
  pass.records.attempts.push_back(std::move(state));
  return {};
}

Result<Claim> read_claim(Vfs& vfs, std::uint64_t generation) {
  const std::string name = generation_file_name(generation);
  Claim claim{.generation = generation, .record = {}};
  const auto text = read_file(vfs, name, kRecordBytesMax);
  if (!text) return claim;
  auto record = decode_generation(*text);
  if (!record && record.error().code() == ErrorCode::kUnsupported) {
    return std::unexpected(std::move(record).error().within(vfs.path_of(name)));
  }
  if (record && record->generation == generation) claim.record = std::move(*record);
  return claim;
}

Result<std::vector<Claim>> read_claims(Vfs& vfs, const RootNames& names) {
  std::vector<Claim> claims;
  for (const std::uint64_t generation : names.generations) {
    DF_TRY(Claim claim, read_claim(vfs, generation));
    claims.push_back(std::move(claim));
  }
  return claims;
}

Result<std::optional<NodeMarker>> read_node_marker(Vfs& vfs, const RootNames& names) {
  if (!names.has_node) return std::nullopt;
  return find_node_marker(vfs);
}

Result<Pass> read_once(Vfs& whole) {
  DF_TRY(const auto look, whole.look());
  Vfs& vfs = look ? *look : whole;
  DF_TRY(const RootNames names, list_root(vfs));
  Pass pass;
  for (const AttemptName& name : names.attempts) DF_TRY_VOID(add_attempt(vfs, name, pass));
  DF_TRY(pass.records.claims, read_claims(vfs, names));
  DF_TRY(pass.records.node, read_node_marker(vfs, names));
  return pass;
}

}  // namespace

Result<std::vector<Claim>> read_claims(Vfs& vfs) {
  DF_TRY(const RootNames names, list_root(vfs));
  return read_claims(vfs, names);
}

Result<Deciders> read_deciders(Vfs& vfs) {
  DF_TRY(const RootNames names, list_root(vfs));
  Deciders deciders;
  DF_TRY(deciders.claims, read_claims(vfs, names));
  DF_TRY(deciders.node, read_node_marker(vfs, names));
  return deciders;
}

Result<RunRecords> read_records(Vfs& vfs) {
  std::vector<AttemptName> gone_before;
  for (int passes = 1;; ++passes) {
    DF_TRY(Pass pass, read_once(vfs));
    const bool settled = std::ranges::includes(gone_before, pass.gone, by_step);
    if (settled || passes == kReadPassesMax) return std::move(pass.records);
    gone_before = std::move(pass.gone);
  }
}

}  // namespace deepfreeze
