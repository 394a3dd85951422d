// Base64 (RFC 4648, with padding), as the state tree writes bytes. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepfreeze {

// Empty if `text` uses another alphabet, is cut, or is padded wrongly.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace deepfreeze
