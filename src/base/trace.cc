#include "base/trace.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace deepfreeze::trace {
namespace {

struct Event {
  const char* name;
  char phase;  // as the format has it: X for a span, b and e for the ends of one over threads
  pid_t thread;
  std::uint64_t begin_nanos;
  std::uint64_t nanos;
  std::uint64_t number;  // bytes of a span, else its id
};

struct Recorder {
  std::mutex mutex;  // guards all below
  std::vector<Event> events;
  std::uint64_t dropped = 0;
  std::map<pid_t, std::string> threads;  // whose names are not told yet
  std::set<pid_t> told;
};

Recorder& recorder() {
  static Recorder one;
  return one;
}

std::uint64_t nanos_of(Monotonic::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

std::string thread_name() {
  std::array<char, 16> name = {};
  if (::pthread_getname_np(::pthread_self(), name.data(), name.size()) != 0) return "thread";
  return name.data();
}

// Times of the format are microseconds.
std::string line_of(const Event& event) {
  constexpr double kNanosPerMicro = 1000.0;
  const double begin = static_cast<double>(event.begin_nanos) / kNanosPerMicro;
  std::string line =
      fmt::format(R"({{"name":"{}","cat":"deepfreeze","ph":"{}","ts":{:.3f},"pid":{},"tid":{},)",
                  event.name, event.phase, begin, ::getpid(), event.thread);
  if (event.phase == 'X') {
    line += fmt::format(R"("dur":{:.3f},"args":{{"bytes":{}}}}})",
                        static_cast<double>(event.nanos) / kNanosPerMicro, event.number);
  } else {
    line += fmt::format(R"("id":{}}})", event.number);
  }
  return line + ",\n";
}

std::string line_of_thread(pid_t thread, const std::string& name) {
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})"
                     ",\n",
                     ::getpid(), thread, name);
}

void record(const Event& event) {
  Recorder& to = recorder();
  const std::lock_guard lock(to.mutex);
  if (to.events.size() >= kEventsMax) {
    ++to.dropped;
    return;
  }
  to.events.push_back(event);
  if (to.told.insert(event.thread).second) to.threads[event.thread] = thread_name();
}

void record_end(const char* name, char phase, std::uint64_t id) {
  if (!active.load(std::memory_order_relaxed)) return;
  record({.name = name,
          .phase = phase,
          .thread = ::gettid(),
          .begin_nanos = nanos_of(Monotonic::now()),
          .nanos = 0,
          .number = id});
}

}  // namespace

std::atomic<bool> active{false};

void start() { active.store(true, std::memory_order_relaxed); }

void stop() {
  active.store(false, std::memory_order_relaxed);
  const std::lock_guard lock(recorder().mutex);
  recorder().events.clear();
  recorder().threads.clear();
  recorder().told.clear();
  recorder().dropped = 0;
}

void begin(const char* name, std::uint64_t id) { record_end(name, 'b', id); }
void end(const char* name, std::uint64_t id) { record_end(name, 'e', id); }

void Span::end() const {
  const auto ended = Monotonic::now();
  record({.name = name_,
          .phase = 'X',
          .thread = ::gettid(),
          .begin_nanos = nanos_of(began_),
          .nanos = nanos_of(ended) - nanos_of(began_),
          .number = bytes_});
}

std::string take() {
  std::vector<Event> events;
  std::map<pid_t, std::string> threads;
  std::uint64_t dropped = 0;
  {
    const std::lock_guard lock(recorder().mutex);
    events = std::exchange(recorder().events, {});
    threads = std::exchange(recorder().threads, {});
    dropped = std::exchange(recorder().dropped, 0);
  }
  std::string text;
  for (const auto& [thread, name] : threads) text += line_of_thread(thread, name);
  for (const Event& event : events) text += line_of(event);
  if (dropped > 0)
    text += fmt::format(R"({{"name":"dropped {}","ph":"i","ts":0}},)", dropped) + "\n";
  return text;
}

}  // namespace deepfreeze::trace
