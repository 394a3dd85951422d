// The text of `deepfreeze.ranges` in a header: digits of one length for each entry that has a
// range, so that a header's size is known before its data. docs/format.md describes it. Pure.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

inline constexpr std::size_t kRangeDigits = 48;

// The number of floating-point entries: each of them has a range if any has one.
[[nodiscard]] std::size_t count_with_range(std::span<const ShardEntry> entries);

void append_ranges(fmt::memory_buffer& out, std::span<const ValueRange> ranges);

// The ranges of valid entries, in their order. kCorrupt if the digits do not fit the entries.
[[nodiscard]] Result<std::vector<ValueRange>> read_ranges(std::string_view digits,
                                                          std::span<const ShardEntry> entries);

}  // namespace deepfreeze
