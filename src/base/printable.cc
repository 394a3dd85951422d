#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace deepfreeze {
namespace {

bool is_control(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return byte < 0x20 || byte == 0x7F;
  return byte == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = utf8_sequence_bytes(text);
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
