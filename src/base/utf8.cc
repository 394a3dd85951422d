#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace deepfreeze {
namespace {

// The length that the lead byte announces; 0 if it is no lead byte.
std::size_t promised_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// Overlong forms, surrogates and code points above U+10FFFF show in the second byte.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xe0:
      return second >= 0xa0;
    case 0xed:
      return second < 0xa0;
    case 0xf0:
      return second >= 0x90;
    case 0xf4:
      return second < 0x90;
    default:
      return true;
  }
}

// How much of its promise a text keeps: the lead byte and the bytes that can follow it.
std::size_t kept_bytes(std::string_view text, std::size_t promised) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t kept = 1;
  while (kept < std::min(promised, text.size()) && (byte(kept) & 0xc0) == 0x80) {
    if (kept == 1 && !second_byte_fits(byte(0), byte(1))) break;
    ++kept;
  }
  return kept;
}

// Most text is ASCII, and a test of eight bytes at a time shows it.
std::size_t ascii_words(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + sizeof(word) <= text.size(); at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & 0x8080808080808080U) != 0) break;
  }
  return at;
}

}  // namespace

std::size_t utf8_sequence_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t bytes = promised_bytes(static_cast<unsigned char>(text[0]));
  return bytes > 0 && kept_bytes(text, bytes) == bytes ? bytes : 0;
}

std::size_t utf8_broken_bytes(std::string_view text) {
  return kept_bytes(text, promised_bytes(static_cast<unsigned char>(text[0])));
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(ascii_words(text));
    if (text.empty()) return true;
    const std::size_t bytes = utf8_sequence_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace deepfreeze
