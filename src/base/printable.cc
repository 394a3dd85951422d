#include "base/printable.h"

#include <fmt/format.h>

namespace deepfreeze {
namespace {

// Of the control character at the front of `text`; 0 where there is none.
std::size_t control_bytes(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte < 0x20 || byte == 0x7F) return 1;
  const bool is_second_set = text.size() > 1 && byte == 0xC2 &&
                             static_cast<unsigned char>(text[1]) >= 0x80 &&
                             static_cast<unsigned char>(text[1]) < 0xA0;
  return is_second_set ? 2 : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = control_bytes(text);
    for (const char c : text.substr(0, bytes)) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    if (bytes == 0) result += text.front();
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return result;
}

}  // namespace deepfreeze
