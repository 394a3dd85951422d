// The names that one node of a job reads of another: a sealed file, parity, or the manifest of an
// attempt, and no other file of the run. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "link/link_message.h"

namespace deepfreeze {

// The most bytes that one LinkRead asks for.
inline constexpr std::uint64_t kRangeBytesMax = 1024 * 1024;

struct SealedName {
  LinkAttempt attempt;
  std::string file;
};

// rank-….safetensors, parity-….safetensors or manifest.json.
[[nodiscard]] bool is_sealed_file(std::string_view file);
// "step-…/rank-….safetensors" or "step-…/manifest.json", as it is spelled in a run's directory.
[[nodiscard]] std::optional<SealedName> parse_sealed_path(std::string_view path);
[[nodiscard]] std::string path_in_run(const LinkAttempt& attempt, std::string_view file);

}  // namespace deepfreeze
