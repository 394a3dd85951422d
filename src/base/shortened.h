// Names and paths of any length on their way into a message.
#pragma once

#include <string>

namespace deepfreeze {

// Cuts the middle out of each word longer than kWordBytesMax bytes, and then out of the text if it
// is still longer than kTextBytesMax. Never splits a UTF-8 character.
inline constexpr std::size_t kWordBytesMax = 300;
inline constexpr std::size_t kTextBytesMax = 4'000;
[[nodiscard]] std::string shortened(std::string text);

}  // namespace deepfreeze
