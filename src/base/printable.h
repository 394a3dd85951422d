// Text from files on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace deepfreeze {

// Control characters as \xNN, those of U+0080 to U+009F too: what is stored must not steer the
// terminal. So are bytes that are no UTF-8, as the names of files may hold.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace deepfreeze
