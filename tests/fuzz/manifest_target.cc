// manifest.json, committed or aborted.
#include <algorithm>

#include "format/names.h"
#include "fuzz/record_check.h"

namespace deepfreeze {
namespace {

// Readers and collectors make paths of these names.
Status check_names(const Manifest& manifest) {
  std::vector<std::string_view> names;
  for (const ManifestFile& file : manifest.files) {
    DF_TRY_VOID(promise(is_safe_name(file.name), "a name that is none"));
    names.push_back(file.name);
  }
  std::ranges::sort(names);
  return promise(std::ranges::adjacent_find(names) == names.end(), "a file twice");
}

Status check_accepted(const Manifest& manifest) {
  DF_TRY_VOID(promise(manifest.world_size > 0, "a checkpoint of no ranks"));
  const bool aborted = manifest.outcome == Outcome::kAborted;
  DF_TRY_VOID(promise(!aborted || manifest.files.empty(), "aborted, and yet with files"));
  return check_names(manifest);
}

}  // namespace

Status fuzz_manifest(std::string_view input) {
  const auto manifest = checked_record<Manifest>({decode_manifest, encode_manifest}, input);
  if (!manifest) return promises_of(manifest);
  return check_accepted(*manifest);
}

}  // namespace deepfreeze
