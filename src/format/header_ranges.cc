#include "format/header_ranges.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/hex.h"
#include "base/try.h"
#include "json/json_writer.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kNumberDigits = kRangeDigits / 3;

bool has_range(const ShardEntry& entry) { return is_floating_point(entry.spec.dtype); }

// `digits` begins with those of one number, which are cut off.
Result<std::uint64_t> take_number(std::string_view& digits) {
  const auto number = parse_hex64(digits.substr(0, kNumberDigits));
  if (!number) return fail(ErrorCode::kCorrupt, "header: a range is not hexadecimal digits");
  digits.remove_prefix(kNumberDigits);
  return *number;
}

bool is_sound(const ValueRange& range) {
  if (range.finite == 0) return range.min == 0 && range.max == 0;
  return std::isfinite(range.min) && std::isfinite(range.max) && range.min <= range.max;
}

Result<ValueRange> take_range(std::string_view& digits, const ShardEntry& entry) {
  const std::uint64_t elements = entry.extent.size() / dtype_bytes(entry.spec.dtype);
  DF_TRY(const std::uint64_t min, take_number(digits));
  DF_TRY(const std::uint64_t max, take_number(digits));
  DF_TRY(const std::uint64_t non_finite, take_number(digits));
  const ValueRange range{.min = std::bit_cast<double>(min),
                         .max = std::bit_cast<double>(max),
                         .finite = elements - std::min(elements, non_finite),
                         .non_finite = non_finite};
  if (non_finite <= elements && is_sound(range)) return range;
  return fail(ErrorCode::kCorrupt,
              fmt::format("header: tensor \"{}\" can't have its range", entry.spec.key));
}

}  // namespace

std::size_t count_with_range(std::span<const ShardEntry> entries) {
  return static_cast<std::size_t>(std::ranges::count_if(entries, has_range));
}

void append_ranges(fmt::memory_buffer& out, std::span<const ValueRange> ranges) {
  for (const ValueRange& range : ranges) {
    append_text(out, hex64(std::bit_cast<std::uint64_t>(range.min)));
    append_text(out, hex64(std::bit_cast<std::uint64_t>(range.max)));
    append_text(out, hex64(range.non_finite));
  }
}

std::uint64_t non_finite_values(std::span<const ValueRange> ranges) {
  std::uint64_t sum = 0;
  for (const ValueRange& range : ranges) sum += range.non_finite;
  return sum;
}

std::optional<std::uint64_t> non_finite_values(const ShardHeader& header) {
  if (!header.ranges) return std::nullopt;
  return non_finite_values(*header.ranges);
}

Result<std::vector<ValueRange>> read_ranges(std::string_view digits,
                                            std::span<const ShardEntry> entries) {
  const std::size_t count = count_with_range(entries);
  if (digits.size() != count * kRangeDigits) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("header: {} digits of ranges for {} tensors", digits.size(), count));
  }
  std::vector<ValueRange> ranges;
  ranges.reserve(count);
  for (const ShardEntry& entry : entries) {
    if (!has_range(entry)) continue;
    DF_TRY(ranges.emplace_back(), take_range(digits, entry));
  }
  return ranges;
}

}  // namespace deepfreeze
