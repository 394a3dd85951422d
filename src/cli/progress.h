// A progress bar on standard error: only on a terminal, and only for work that lasts over a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "cli/console.h"
#include "inspect/reading.h"

namespace deepfreeze {

class Progress {
 public:
  using Now = std::function<Monotonic::time_point()>;
  Progress(const Console& console, std::string label, std::uint64_t total,
           Now now = Monotonic::now);
  ~Progress();  // wipes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Any thread, never two at once.
  void update(std::uint64_t done);

 private:
  const Console& console_;
  std::string label_;
  std::uint64_t total_;
  Now now_;
  Monotonic::time_point start_;
  Monotonic::time_point drawn_;
  bool visible_ = false;
};

// A bar of its own for each reading. Borrows `console`.
[[nodiscard]] Watch bars_on(const Console& console);

}  // namespace deepfreeze
