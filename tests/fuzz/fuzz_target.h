// A fuzz target takes any bytes as input and tells which promise of ours they broke: none, ever.
// Libfuzzer runs these functions, and so does fuzz_corpus_test, over the stored inputs.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/try.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

struct FuzzTarget {
  std::string_view name;
  Status (*run)(std::string_view input);  // kInternal names the broken promise
};

[[nodiscard]] std::span<const FuzzTarget> fuzz_targets();
[[nodiscard]] const FuzzTarget* find_fuzz_target(std::string_view name);  // null for none

// One file each.
[[nodiscard]] Status fuzz_header(std::string_view input);
[[nodiscard]] Status fuzz_header_round_trip(std::string_view input);
[[nodiscard]] Status fuzz_export(std::string_view input);
[[nodiscard]] Status fuzz_manifest(std::string_view input);
[[nodiscard]] Status fuzz_claim(std::string_view input);
[[nodiscard]] Status fuzz_run_file(std::string_view input);
[[nodiscard]] Status fuzz_scrub(std::string_view input);
[[nodiscard]] Status fuzz_tags(std::string_view input);
[[nodiscard]] Status fuzz_json(std::string_view input);
[[nodiscard]] Status fuzz_tree(std::string_view input);
[[nodiscard]] Status fuzz_link(std::string_view input);
[[nodiscard]] Status fuzz_packed(std::string_view input);
[[nodiscard]] Status fuzz_small_parsers(std::string_view input);
[[nodiscard]] Status fuzz_run(std::string_view input);
[[nodiscard]] Status fuzz_attempt(std::string_view input);

[[nodiscard]] inline std::unexpected<Error> broken(std::string promise) {
  return fail(ErrorCode::kInternal, std::move(promise));
}
[[nodiscard]] inline Status promise(bool kept, std::string_view text) {
  if (kept) return {};
  return broken(std::string(text));
}

// Any refusal of bytes must have one of these codes, and a cause.
[[nodiscard]] Status check_refusal(const Error& error, std::span<const ErrorCode> allowed);
// For bytes that can only be corrupt or of a newer version.
[[nodiscard]] Status check_refusal(const Error& error);

}  // namespace deepfreeze
