// One line on standard error for a fact that a person must know and that no call can return.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace deepfreeze {

// "deepfreeze: warning: <text>". Any thread.
void log_warning(std::string_view text);

// "deepfreeze: note: <text>", for events that cost little or nothing. Any thread.
void log_note(std::string_view text);

// Sends the lines elsewhere, e.g. to a test's list. Must not be called while another thread logs.
void set_log_sink(std::function<void(std::string_view line)> sink);

}  // namespace deepfreeze
