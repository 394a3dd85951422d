// SHA-256 and HMAC, by OpenSSL, which is found at run time. Pure functions, any thread. All are
// kUnsupported on a machine without OpenSSL 3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

using Sha256 = std::array<std::uint8_t, 32>;

[[nodiscard]] Result<Sha256> sha256(std::span<const std::byte> bytes);
[[nodiscard]] Result<Sha256> sha256(std::string_view text);
[[nodiscard]] Result<Sha256> hmac_sha256(std::span<const std::uint8_t> key, std::string_view text);

[[nodiscard]] std::string lower_case_hex(std::span<const std::uint8_t> bytes);

}  // namespace deepfreeze
