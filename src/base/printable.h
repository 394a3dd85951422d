// Text from files on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace deepfreeze {

// Writes control characters, U+0080 to U+009F included, as \xNN: stored text must not steer the
// terminal. Bytes that are not UTF-8, which file names may contain, are written the same way.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace deepfreeze
