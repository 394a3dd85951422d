// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace deepfreeze {

// The length of the sequence that `text` starts with; 0 if it starts with none.
[[nodiscard]] std::size_t utf8_sequence_bytes(std::string_view text);

// The bytes for which one U+FFFD stands, of a text that is not empty and starts with no sequence: a
// sequence that breaks off, or one byte.
[[nodiscard]] std::size_t utf8_broken_bytes(std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace deepfreeze
