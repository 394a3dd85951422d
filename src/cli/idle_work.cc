#include "cli/idle_work.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

namespace deepfreeze {
namespace {

constexpr int kLowestNice = 19;
// As in linux/ioprio.h, which is not C++: this thread, and the idle class.
constexpr int kThisThread = 1;
constexpr int kIdleClass = 3 << 13;

// Linux applies both to the calling thread; glibc has no wrapper for the second.
std::vector<std::string> lower_priority() {
  std::vector<std::string> refused;
  if (::setpriority(PRIO_PROCESS, 0, kLowestNice) != 0) {
    refused.push_back(fmt::format("the CPU priority stays as it is: {}", std::strerror(errno)));
  }
  if (::syscall(SYS_ioprio_set, kThisThread, 0, kIdleClass) != 0) {
    refused.push_back(fmt::format("the I/O priority stays as it is: {}", std::strerror(errno)));
  }
  return refused;
}

}  // namespace

std::vector<std::string> run_idle(const std::function<void()>& work) {
  auto lowered = std::async(std::launch::async, [&work] {
    std::vector<std::string> refused = lower_priority();
    work();
    return refused;
  });
  return lowered.get();  // also what `work` threw
}

}  // namespace deepfreeze
