#include "manifest/name_kind.h"

#include <optional>
#include <string>

#include "base/hex.h"
#include "format/file_reference.h"
#include "format/names.h"
#include "format/node_record.h"
#include "format/scrub_record.h"
#include "format/tag_record.h"
#include "manifest/run_directory.h"

namespace deepfreeze {
namespace {

// `before`, 16 hexadecimal digits, `after`.
bool has_nonce(std::string_view name, std::string_view before, std::string_view after) {
  if (!name.starts_with(before) || !name.ends_with(after)) return false;
  if (name.size() < before.size() + after.size()) return false;
  name.remove_prefix(before.size());
  name.remove_suffix(after.size());
  return parse_hex64(name).has_value();
}

// As a claim's name, with a mark before its end.
bool is_void_claim(std::string_view name) {
  const std::size_t mark = name.find(".void-");
  if (mark == std::string_view::npos) return false;
  const std::string claim = std::string(name.substr(0, mark)) + ".json";
  return parse_generation_file_name(claim) && has_nonce(name.substr(mark), ".void-", ".json");
}

// As a sealed part's name, but for how it ends.
bool is_part_with(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return parse_sealed_file_name(std::string(name) + ".safetensors").has_value();
}

}  // namespace

NameKind kind_in_run(const DirEntry& entry) {
  const std::string_view name = entry.name;
  if (entry.is_directory) {
    if (name == kSharedDirectory) return NameKind::kShared;
    return parse_attempt_dir_name(name) ? NameKind::kAttempt : NameKind::kForeign;
  }
  if (name == kRunFile) return NameKind::kRunRecord;
  if (name == kScrubFile) return NameKind::kScrubMemory;
  if (name == kIndexFile) return NameKind::kIndex;
  if (name == kNodeFile) return NameKind::kNodeMarker;
  if (parse_generation_file_name(name)) return NameKind::kClaim;
  if (is_void_claim(name)) return NameKind::kVoidClaim;
  if (has_nonce(name, "deepfreeze.bad-", ".json")) return NameKind::kKeptRunRecord;
  for (const std::string_view stem :
       {"deepfreeze.", "generation.", "scrub.", "node.", ".deepfreeze-index."}) {
    if (has_nonce(name, stem, ".tmp")) return NameKind::kTemporary;
  }
  return NameKind::kForeign;
}

NameKind kind_in_attempt(const DirEntry& entry) {
  const std::string_view name = entry.name;
  if (entry.is_directory) return NameKind::kForeign;
  if (name == kManifestFile) return NameKind::kManifest;
  if (name == kDeletedManifestFile) return NameKind::kDeletedManifest;
  if (parse_tag_file_name(name)) return NameKind::kTags;
  if (parse_sealed_file_name(name)) return NameKind::kSealedPart;
  if (is_parity_file_name(name)) return NameKind::kParity;
  if (name == kProtectedFile || name == kUnprotectedFile) return NameKind::kParityMark;
  if (is_part_with(name, ".part")) return NameKind::kPart;
  if (is_part_with(name, ".failed")) return NameKind::kFailedPart;
  if (has_nonce(name, "manifest.bad-", ".json")) return NameKind::kKeptManifest;
  // A flush makes the second kind.
  for (const std::string_view stem : {"manifest.", "rank.", "tags.", "parity."}) {
    if (has_nonce(name, stem, ".tmp")) return NameKind::kTemporary;
  }
  return NameKind::kForeign;
}

}  // namespace deepfreeze
