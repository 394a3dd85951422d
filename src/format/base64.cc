#include "format/base64.h"

#include <array>
#include <cstdint>

namespace deepfreeze {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint32_t kNone = 64;

constexpr auto kValues = [] {
  std::array<std::uint32_t, 256> values{};
  values.fill(kNone);
  for (std::uint32_t i = 0; i < kNone; ++i) values.at(static_cast<unsigned char>(kAlphabet[i])) = i;
  return values;
}();

std::size_t padding(std::string_view text) {
  if (text.ends_with("==")) return 2;
  return text.ends_with('=') ? 1 : 0;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t bytes = text.size() / 4 * 3 - padding(text);
  text.remove_suffix(padding(text));
  std::string out;
  out.reserve(bytes);
  std::uint32_t bits = 0;
  std::uint32_t bit_count = 0;
  for (const char c : text) {
    const std::uint32_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNone) return std::nullopt;
    bits = (bits << 6 | value) & 0xffff;
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    out.push_back(static_cast<char>(bits >> bit_count & 0xff));
  }
  return out;
}

}  // namespace deepfreeze
