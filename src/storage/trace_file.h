// The file that receives the spans of base/trace.h, for chrome://tracing or ui.perfetto.dev. An
// engine owns it; flush() by one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "deepfreeze/result.h"

namespace deepfreeze {

class TraceFile {
 public:
  // Begins the trace if DEEPFREEZE_TRACE names a file for it; null if it names none. The first
  // trace of a process empties the file, later ones append to it. The error names variable, path
  // and cause.
  [[nodiscard]] static Result<std::unique_ptr<TraceFile>> from_environment();
  explicit TraceFile(std::string path) : path_(std::move(path)) {}
  ~TraceFile();

  // Appends the spans recorded since the last call. The file is a JSON array without its closing
  // bracket, which the format allows: so it is readable at any time. A failure is logged once and
  // ends the trace.
  void flush();

 private:
  const std::string path_;
  bool failed_ = false;
};

}  // namespace deepfreeze
