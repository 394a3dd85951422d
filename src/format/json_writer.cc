#include "format/json_writer.h"

#include <algorithm>

namespace deepfreeze {
namespace {

bool needs_escape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

void append_escape(fmt::memory_buffer& out, char c) {
  if (static_cast<unsigned char>(c) < 0x20) {
    fmt::format_to(fmt::appender(out), "\\u{:04x}", static_cast<unsigned>(c));
    return;
  }
  out.push_back('\\');
  out.push_back(c);
}

}  // namespace

void append_json_string(fmt::memory_buffer& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const auto plain =
        static_cast<std::size_t>(std::ranges::find_if(text, needs_escape) - text.begin());
    append_text(out, text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    append_escape(out, text.front());
    text.remove_prefix(1);
  }
  out.push_back('"');
}

void append_json_array(fmt::memory_buffer& out, std::span<const std::uint64_t> values) {
  out.push_back('[');
  for (const std::uint64_t& value : values) {
    if (&value != values.data()) out.push_back(',');
    append_text(out, fmt::format_int(value).c_str());
  }
  out.push_back(']');
}

}  // namespace deepfreeze
