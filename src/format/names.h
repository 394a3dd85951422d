// The names of a run's files and directories: made here, parsed here, nowhere else. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::string_view kRunFile = "deepfreeze.json";
inline constexpr std::string_view kManifestFile = "manifest.json";
// A hint for listings of many runs (inspect/run_index.h); nothing else reads it.
inline constexpr std::string_view kIndexFile = ".deepfreeze-index";

// step-000000000100-9f2c41d07a3be856
struct AttemptName {
  std::uint64_t step = 0;
  std::uint64_t attempt_id = 0;
  bool operator==(const AttemptName&) const = default;
};
[[nodiscard]] std::string attempt_dir_name(const AttemptName& name);
[[nodiscard]] std::optional<AttemptName> parse_attempt_dir_name(std::string_view text);

// rank-00000-of-00004-0-of-1.safetensors; ".part" in place of ".safetensors" until sealed.
struct PartName {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t file = 0;
  std::uint32_t file_count = 1;
  bool operator==(const PartName&) const = default;
};
[[nodiscard]] std::string sealed_file_name(const PartName& name);
[[nodiscard]] std::string part_file_name(const PartName& name);
[[nodiscard]] std::string failed_file_name(const PartName& name);  // rank-….failed
[[nodiscard]] std::optional<PartName> parse_sealed_file_name(std::string_view text);

// parity-00003-of-00008.safetensors: that of one node's files among a group's (src/protect), with
// the node's number and that of all nodes.
[[nodiscard]] std::string parity_file_name(std::uint64_t node, std::uint64_t nodes);
[[nodiscard]] bool is_parity_file_name(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parity_file_node(std::string_view text);
// parity.9f2c41d07a3be856.tmp: one that is being written, or was when its process died.
[[nodiscard]] std::string unfinished_parity_name(std::uint64_t nonce);
[[nodiscard]] bool is_unfinished_parity_name(std::string_view text);
// Empty files, of which an attempt has one once it is known: all nodes of the job have their parity
// of this checkpoint; some have not, and it gets none, because a newer one came first.
inline constexpr std::string_view kProtectedFile = "protected";
inline constexpr std::string_view kUnprotectedFile = "unprotected";

// generation-00000002.json
[[nodiscard]] std::string generation_file_name(std::uint64_t generation);
[[nodiscard]] std::optional<std::uint64_t> parse_generation_file_name(std::string_view text);
// generation-00000002.void-9f2c41d07a3be856.json: a claim that lost against another of its number.
[[nodiscard]] std::string void_claim_name(std::uint64_t generation, std::uint64_t nonce);

// A single path component of [A-Za-z0-9._-]{1,128}, not "." or "..".
[[nodiscard]] bool is_safe_name(std::string_view text);

}  // namespace deepfreeze
