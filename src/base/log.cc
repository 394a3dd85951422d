#include "base/log.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/printable.h"

namespace deepfreeze {
namespace {

std::function<void(std::string_view)>& sink() {
  static std::function<void(std::string_view)> installed;
  return installed;
}

void log(std::string_view kind, std::string_view text) {
  const std::string line = fmt::format("deepfreeze: {}: {}", kind, printable(text));
  if (sink()) return sink()(line);
  fmt::print(stderr, "{}\n", line);
}

}  // namespace

void log_warning(std::string_view text) { log("warning", text); }

void log_exception(std::string_view text, const std::exception& cause) noexcept {
  try {
    log_warning(fmt::format("{}: {}", text, cause.what()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): there is nobody else to tell
  }
}

void log_note(std::string_view text) { log("note", text); }

void set_log_sink(std::function<void(std::string_view line)> installed) {
  sink() = std::move(installed);
}

}  // namespace deepfreeze
