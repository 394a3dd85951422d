// Times in the answers of stores and of places that give keys. Pure, any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace deepfreeze {

using SystemTime = std::chrono::system_clock::time_point;

// "2014-10-24T23:00:23Z", also with a fraction or an offset ("+02:00"): ISO 8601 as RFC 3339
// narrows it. Times after the year 2200 are the last of them, those before 1970 the first.
[[nodiscard]] std::optional<SystemTime> parse_iso_time(std::string_view text);

}  // namespace deepfreeze
