// Spans of time, for a picture of what the threads did. Off, one costs a relaxed load.
//
//   const trace::Span span("copy", bytes);
//
// Recorded in memory until somebody takes them: see storage/trace_file.h. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace deepfreeze::trace {

inline constexpr std::size_t kEventsMax = 1'000'000;  // not taken yet; more are counted, not kept

extern std::atomic<bool> active;

void start();
void stop();  // and forgets what is not taken

// The same for what begins on one thread and ends on another; `id` tells several at once apart.
void begin(const char* name, std::uint64_t id);
void end(const char* name, std::uint64_t id);

// Lines of the Trace Event Format (JSON), each ended by ",\n": those since
// the last call. Empty where there is none.
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
