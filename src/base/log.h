// One line on standard error for what a person must know and no call can return.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace deepfreeze {

// "deepfreeze: warning: <text>". Any thread.
void log_warning(std::string_view text);

// "deepfreeze: note: <text>", for what costs nothing or hardly anything. Any thread.
void log_note(std::string_view text);

// Where the lines go instead, e.g. a test's list. Not while another thread logs.
void set_log_sink(std::function<void(std::string_view line)> sink);

}  // namespace deepfreeze
