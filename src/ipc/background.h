// The surroundings of a process that serves others. For one that has no other threads yet.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

// A descriptor that can be read once SIGTERM or SIGINT has come; neither ends the process any more.
[[nodiscard]] Result<UniqueFd> take_end_signals();

// "READY=1" or "STOPPING=1", if systemd waits for it (Type=notify); else nothing.
void tell_systemd(std::string_view state);

// Runs `prepare`, then `serve`, in a process of its own without a terminal, whose output goes to
// `log`. Returns once it is prepared, or with its error.
struct Service {
  std::function<Status()> prepare;
  std::function<Status()> serve;
};
[[nodiscard]] Status start_in_background(const Service& service, const std::filesystem::path& log);

}  // namespace deepfreeze
