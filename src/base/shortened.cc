#include "base/shortened.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace deepfreeze {
namespace {

constexpr std::size_t kBeginningBytes = 150;
constexpr std::size_t kEndBytes = 50;
constexpr std::string_view kSpaces = " \t\n\r";

bool is_inside_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string elided(std::string_view text, std::size_t beginning) {
  while (beginning > 0 && is_inside_character(text[beginning])) --beginning;
  std::size_t end = text.size() - kEndBytes;
  while (end < text.size() && is_inside_character(text[end])) ++end;
  return fmt::format("{}...({} bytes left out)...{}", text.substr(0, beginning), end - beginning,
                     text.substr(end));
}

}  // namespace

std::string shortened(std::string text) {
  if (text.size() <= kWordBytesMax) return text;
  const std::string_view whole = text;
  std::string result;
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = std::min(whole.find_first_of(kSpaces, begin), whole.size());
    const std::string_view word = whole.substr(begin, end - begin);
    result += word.size() > kWordBytesMax ? elided(word, kBeginningBytes) : std::string(word);
    begin = std::min(whole.find_first_not_of(kSpaces, end), whole.size());
    result += whole.substr(end, begin - end);
  }
  return result.size() <= kTextBytesMax ? result
                                        : elided(result, kTextBytesMax - 2 * kWordBytesMax);
}

}  // namespace deepfreeze
