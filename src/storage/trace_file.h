// Where the spans of base/trace.h go: a file for chrome://tracing or ui.perfetto.dev. Owned by an
// engine; flush() by one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "deepfreeze/result.h"

namespace deepfreeze {

class TraceFile {
 public:
  // Begins the trace that DEEPFREEZE_TRACE names a file for; null where it names none. The first
  // of a process empties the file, others add to it. The error names variable, path and cause.
  [[nodiscard]] static Result<std::unique_ptr<TraceFile>> from_environment();
  explicit TraceFile(std::string path) : path_(std::move(path)) {}
  ~TraceFile();

  // Adds what was recorded since. The file is a JSON array without its closing bracket, as the
  // format allows: so it is readable at any time. A failure is logged once and ends the trace.
  void flush();

 private:
  const std::string path_;
  bool failed_ = false;
};

}  // namespace deepfreeze
