// Appends JSON to a text directly, for data that would be slow as a document tree. Pure functions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace deepfreeze {

// In quotes, with the escapes that JSON demands. `text` must be UTF-8.
void append_json_string(fmt::memory_buffer& out, std::string_view text);

void append_json_array(fmt::memory_buffer& out, std::span<const std::uint64_t> values);

inline void append_text(fmt::memory_buffer& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

}  // namespace deepfreeze
