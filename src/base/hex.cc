#include "base/hex.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace deepfreeze {
namespace {

bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

template <class T>
std::optional<T> parse_hex(std::string_view digits) {
  if (digits.size() != 2 * sizeof(T) || !std::ranges::all_of(digits, is_lower_hex)) return {};
  T value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

std::string hex32(std::uint32_t value) { return fmt::format("{:08x}", value); }
std::string hex64(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<std::uint32_t> parse_hex32(std::string_view digits) {
  return parse_hex<std::uint32_t>(digits);
}
std::optional<std::uint64_t> parse_hex64(std::string_view digits) {
  return parse_hex<std::uint64_t>(digits);
}

}  // namespace deepfreeze
