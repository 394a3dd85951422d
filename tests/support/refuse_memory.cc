#include "support/refuse_memory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <string>

namespace deepfreeze {
namespace {

std::atomic<pid_t> asked_thread{0};  // relaxed: the mutex orders the rest
std::mutex mutex;                    // guards the next one
std::function<bool()> decision;

pid_t this_thread() {
  thread_local const pid_t id = ::gettid();
  return id;
}

bool is_refused() {
  if (asked_thread.load(std::memory_order_relaxed) != this_thread()) return false;
  thread_local bool is_deciding = false;
  if (is_deciding) return false;
  const std::lock_guard lock(mutex);
  is_deciding = true;
  const bool refused = decision && decision();
  is_deciding = false;
  return refused;
}

}  // namespace

MemoryRefusal::MemoryRefusal(pid_t thread, std::function<bool()> decide) {
  const std::lock_guard lock(mutex);
  decision = std::move(decide);
  asked_thread.store(thread, std::memory_order_relaxed);
}

MemoryRefusal::~MemoryRefusal() {
  asked_thread.store(0, std::memory_order_relaxed);
  const std::lock_guard lock(mutex);
  decision = nullptr;
}

std::vector<pid_t> threads_named(std::string_view name) {
  std::vector<pid_t> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string found;
    std::getline(file, found);
    if (found == name) threads.push_back(std::stoi(task.path().filename()));
  }
  std::ranges::sort(threads);
  return threads;
}

pid_t thread_named(std::string_view name) {
  const auto threads = threads_named(name);
  return threads.empty() ? 0 : threads.front();
}

}  // namespace deepfreeze

// Uses the linker's --wrap, since a sanitizer has an operator new of its own that can't be
// replaced.
extern "C" {
void* __real__Znwm(std::size_t bytes);   // NOLINT(bugprone-reserved-identifier)
void* __wrap__Znwm(std::size_t bytes) {  // NOLINT(bugprone-reserved-identifier)
  if (deepfreeze::is_refused()) throw std::bad_alloc();
  return __real__Znwm(bytes);
}
}
