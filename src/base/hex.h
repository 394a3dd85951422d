// Fixed-width lower-case hexadecimal, as the file format writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepfreeze {

[[nodiscard]] std::string hex32(std::uint32_t value);  // 8 digits
[[nodiscard]] std::string hex64(std::uint64_t value);  // 16 digits

// Exactly 8 (16) lower-case digits, else empty.
[[nodiscard]] std::optional<std::uint32_t> parse_hex32(std::string_view digits);
[[nodiscard]] std::optional<std::uint64_t> parse_hex64(std::string_view digits);

}  // namespace deepfreeze
