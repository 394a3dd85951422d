// Spans of time, from which a picture of the threads' work is drawn. While tracing is off, a span
// costs a relaxed load.
//
//   const trace::Span span("copy", bytes);
//
// Spans are recorded in memory until somebody takes them: see storage/trace_file.h. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace deepfreeze::trace {

inline constexpr std::size_t kEventsMax = 1'000'000;  // not taken yet; more are only counted

extern std::atomic<bool> active;

void start();
void stop();  // drops the spans that nobody has taken

// A span that begins on one thread and ends on another; `id` tells several open ones apart.
void begin(const char* name, std::uint64_t id);
void end(const char* name, std::uint64_t id);

// Lines of the Trace Event Format (JSON), each ended by ",\n": the events since the last call.
// Empty if there are none.
[[nodiscard]] std::string take();

class Span {
 public:
  // `name`: a string literal. `bytes`: shown beside it, 0 for none.
  explicit Span(const char* name, std::uint64_t bytes = 0)
      : name_(active.load(std::memory_order_relaxed) ? name : nullptr), bytes_(bytes) {
    if (name_ != nullptr) began_ = Monotonic::now();
  }
  ~Span() {
    if (name_ != nullptr) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void end() const;

  const char* name_;
  std::uint64_t bytes_;
  Monotonic::time_point began_;
};

}  // namespace deepfreeze::trace
