// scrub.json: when each checkpoint of a run was last read and checked, and whether it was good.
// A hint for the order of the next pass; nothing else depends on it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"
#include "format/names.h"

namespace deepfreeze {

inline constexpr std::string_view kScrubFile = "scrub.json";

struct ScrubEntry {
  AttemptName attempt;
  std::int64_t wall_micros = 0;
  bool good = false;
  bool operator==(const ScrubEntry&) const = default;
};

struct ScrubRecord {
  std::string run_id;
  std::vector<ScrubEntry> entries;
  bool operator==(const ScrubRecord&) const = default;
};

[[nodiscard]] std::string encode_scrub(const ScrubRecord& record);
[[nodiscard]] Result<ScrubRecord> decode_scrub(std::string_view text);

}  // namespace deepfreeze
