#include "fuzz/fuzz_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace deepfreeze {
namespace {

constexpr std::array<FuzzTarget, 15> kTargets = {{{"header", fuzz_header},
                                                  {"header_round_trip", fuzz_header_round_trip},
                                                  {"export", fuzz_export},
                                                  {"manifest", fuzz_manifest},
                                                  {"claim", fuzz_claim},
                                                  {"run_file", fuzz_run_file},
                                                  {"scrub", fuzz_scrub},
                                                  {"tags", fuzz_tags},
                                                  {"json", fuzz_json},
                                                  {"tree", fuzz_tree},
                                                  {"link", fuzz_link},
                                                  {"packed", fuzz_packed},
                                                  {"small_parsers", fuzz_small_parsers},
                                                  {"run", fuzz_run},
                                                  {"attempt", fuzz_attempt}}};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

const FuzzTarget* find_fuzz_target(std::string_view name) {
  const auto* found = std::ranges::find(kTargets, name, &FuzzTarget::name);
  return found == kTargets.end() ? nullptr : found;
}

Status check_refusal(const Error& error, std::span<const ErrorCode> allowed) {
  if (std::ranges::find(allowed, error.code()) == allowed.end()) {
    return broken(fmt::format("refused as {}: {}", to_string(error.code()), error.message()));
  }
  return promise(!error.message().empty(), "refused without a cause");
}

Status check_refusal(const Error& error) {
  constexpr std::array kAllowed = {ErrorCode::kCorrupt, ErrorCode::kUnsupported};
  return check_refusal(error, kAllowed);
}

}  // namespace deepfreeze
