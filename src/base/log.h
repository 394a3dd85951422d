// One line on standard error for a fact that a person must know and that no call can return.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

namespace deepfreeze {

// "deepfreeze: warning: <text>". Any thread.
void log_warning(std::string_view text);

// "deepfreeze: warning: <text>: <cause>", for a handler at the end of a thread. Says nothing if
// memory is refused for that, too. Any thread.
void log_exception(std::string_view text, const std::exception& cause) noexcept;

// "deepfreeze: note: <text>", for events that cost little or nothing. Any thread.
void log_note(std::string_view text);

// Sends the lines elsewhere, e.g. to a test's list. Must not be called while another thread logs.
void set_log_sink(std::function<void(std::string_view line)> sink);

}  // namespace deepfreeze
