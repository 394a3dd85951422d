#include "base/printable.h"

#include <fmt/format.h>

namespace deepfreeze {
namespace {

// The length of the first character of `text`; 0 if its bytes are not UTF-8.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t count = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < count) return 0;
  for (std::size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // An overlong form, half of a surrogate pair, or a value beyond the last code point.
  const bool wrong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0) ||
                     (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90);
  return wrong ? 0 : count;
}

bool is_control(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return byte < 0x20 || byte == 0x7F;
  return byte == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes > 0 && !is_control(character)) {
      result += character;
    } else {
      for (const char c : character) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(character.size());
  }
  return result;
}

}  // namespace deepfreeze
