// Named places at which a test makes a step fail, stop or die. A place that is not armed costs a
// relaxed load.
//
// DEEPFREEZE_FAIL="commit.sealed=kill;part.write=error:ENOSPC@3" arms them for a process:
// kill (SIGKILL), error[:ERRNO], sleep:MS, after:NAME (stops until that one is recorded); @N acts
// at the N-th pass only.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

namespace fail_points {

// Takes the syntax of the environment variable and replaces everything armed before. Any thread.
[[nodiscard]] Status arm(std::string_view specification);
void disarm();

// The distinct names passed while recording, in order of first pass.
void start_recording();
[[nodiscard]] std::vector<std::string> recorded();
// Waits for a pass in another thread, while recording. kTimeout: none came in a minute.
[[nodiscard]] Status await_recorded(std::string_view name);

extern std::atomic<bool> active;
[[nodiscard]] Status pass(std::string_view name);

}  // namespace fail_points

// DF_FAIL_POINT("commit.sealed"): returns the injected error from the enclosing function.
#define DF_FAIL_POINT(name)                                                           \
  if (::deepfreeze::fail_points::active.load(std::memory_order_relaxed)) [[unlikely]] \
    DF_TRY_VOID(::deepfreeze::fail_points::pass(name))

// For code that cannot return an error: only sleep and kill act here.
#define DF_STALL_POINT(name)                                                          \
  if (::deepfreeze::fail_points::active.load(std::memory_order_relaxed)) [[unlikely]] \
  std::ignore = ::deepfreeze::fail_points::pass(name)

}  // namespace deepfreeze
