// Names and paths of any length on their way into a message.
#pragma once

#include <string>

namespace deepfreeze {

// The text with the middle of each word of more than kWordBytesMax bytes left out, and its own
// middle where it is longer than kTextBytesMax; never within a character of UTF-8.
inline constexpr std::size_t kWordBytesMax = 300;
inline constexpr std::size_t kTextBytesMax = 4'000;
[[nodiscard]] std::string shortened(std::string text);

}  // namespace deepfreeze
