// JSON from disk is data: bounded, without duplicate keys, or refused.
//
// A *sealed* text begins {"crc32c":"xxxxxxxx", and that CRC covers the whole text with its own
// eight digits as '0'. It is checked before anything is parsed.
//
// A whole number beyond 2^53, which a reader that calculates in doubles would round, is written
// as a string of decimal digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kJsonDepthMax = 64;
inline constexpr std::size_t kSealedJsonBytesMax = 64 * 1024 * 1024;
inline constexpr std::int64_t kJsonIntegerMax = std::int64_t{1} << 53;

// kCorrupt: not JSON, deeper than kJsonDepthMax, a key twice in one object, bytes after the end.
[[nodiscard]] Result<nlohmann::json> parse_strict(std::string_view text,
                                                  std::size_t depth_max = kJsonDepthMax);

// `object`: the text of an object with members, none of them "crc32c", on one line. With its end.
[[nodiscard]] std::string seal_text(std::string_view object);
[[nodiscard]] Result<nlohmann::json> parse_sealed(std::string_view text);

[[nodiscard]] nlohmann::ordered_json whole_json(std::uint64_t value);
[[nodiscard]] nlohmann::ordered_json whole_json(std::int64_t value);

// Typed access to members of untrusted objects; kCorrupt names the member.
[[nodiscard]] Result<std::uint64_t> get_u64(const nlohmann::json& object, std::string_view member);
[[nodiscard]] Result<std::uint32_t> get_u32(const nlohmann::json& object, std::string_view member);
[[nodiscard]] Result<std::int64_t> get_i64(const nlohmann::json& object, std::string_view member);
[[nodiscard]] Result<std::string> get_string(const nlohmann::json& object, std::string_view member);
// Exactly 8 (16) lower-case hexadecimal digits.
[[nodiscard]] Result<std::uint32_t> get_hex32(const nlohmann::json& object,
                                              std::string_view member);
[[nodiscard]] Result<std::uint64_t> get_hex64(const nlohmann::json& object,
                                              std::string_view member);
// The member itself; null if there is none.
[[nodiscard]] const nlohmann::json* find_member(const nlohmann::json& object,
                                                std::string_view member);

}  // namespace deepfreeze
