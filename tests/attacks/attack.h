// Hostile files: each is one change of a good file, with its purpose and the refusal it must meet.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

struct Attack {
  std::string_view tries;
  std::string_view from;  // in the good file's JSON
  std::string_view to;
  ErrorCode code = ErrorCode::kCorrupt;
  std::string_view says;  // a part of the message
};

// Changes of victim_header(), victim_manifest(), victim_claim() and victim_run_file(). Their
// checksums are put right: an attacker can count, too.
[[nodiscard]] std::span<const Attack> header_attacks();
[[nodiscard]] std::span<const Attack> manifest_attacks();
[[nodiscard]] std::span<const Attack> claim_attacks();
[[nodiscard]] std::span<const Attack> run_file_attacks();

// The JSON after the change; throws if the good file lacks the text to change.
[[nodiscard]] std::string attacked(std::string_view good, const Attack& attack);

}  // namespace deepfreeze
