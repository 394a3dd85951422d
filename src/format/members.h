// Members of the objects in headers and records: whole numbers, text, hexadecimal digits. Pure.
//
// A whole number beyond 2^53, which a reader that calculates in doubles would round, is written
// as a string of decimal digits.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "json/json_value.h"
#include "json/json_writer.h"

namespace deepfreeze {

inline constexpr std::int64_t kJsonIntegerMax = std::int64_t{1} << 53;

[[nodiscard]] constexpr bool is_plain_whole(std::integral auto value) {
  return std::cmp_less_equal(value, kJsonIntegerMax) &&
         std::cmp_greater_equal(value, -kJsonIntegerMax);
}

// A value for JsonWriter.
[[nodiscard]] auto whole(std::integral auto value) {
  return [value](JsonWriter& json) {
    is_plain_whole(value) ? json.value(value) : json.value(fmt::to_string(value));
  };
}

// Typed access to members of untrusted objects; kCorrupt names the member.
[[nodiscard]] Result<std::uint64_t> get_u64(const JsonValue& object, std::string_view member);
[[nodiscard]] Result<std::uint32_t> get_u32(const JsonValue& object, std::string_view member);
[[nodiscard]] Result<std::int64_t> get_i64(const JsonValue& object, std::string_view member);
[[nodiscard]] Result<std::string> get_string(const JsonValue& object, std::string_view member);
[[nodiscard]] Result<const JsonArray*> get_array(const JsonValue& object, std::string_view member);
// Exactly 8 (16) lower-case hexadecimal digits.
[[nodiscard]] Result<std::uint32_t> get_hex32(const JsonValue& object, std::string_view member);
[[nodiscard]] Result<std::uint64_t> get_hex64(const JsonValue& object, std::string_view member);

}  // namespace deepfreeze
