#include "nodes/sealed_name.h"

#include <fmt/format.h>

#include "format/names.h"
#include "storage/vfs_name.h"

namespace deepfreeze {

bool is_sealed_file(std::string_view file) {
  return file == kManifestFile || parse_sealed_file_name(file) || is_parity_file_name(file);
}

std::optional<SealedName> parse_sealed_path(std::string_view path) {
  const SplitName split = split_vfs_name(path);
  const auto attempt = parse_attempt_dir_name(split.parent);
  if (!attempt || !is_sealed_file(split.leaf)) return std::nullopt;
  return SealedName{.attempt = {.step = attempt->step, .attempt_id = attempt->attempt_id},
                    .file = std::string(split.leaf)};
}

std::string path_in_run(const LinkAttempt& attempt, std::string_view file) {
  return fmt::format("{}/{}", attempt_dir_name({attempt.step, attempt.attempt_id}), file);
}

}  // namespace deepfreeze
