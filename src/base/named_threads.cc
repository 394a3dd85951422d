#include "base/named_threads.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <tuple>

#include "base/log.h"

namespace deepfreeze {

void enter_own_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.c_str());
  sigset_t blocked;
  ::sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&blocked, own);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
}

void step_aside() {
  constexpr int kNice = 10;
  // Of the thread alone, on Linux.
  std::ignore = ::setpriority(PRIO_PROCESS, 0, std::max(kNice, ::getpriority(PRIO_PROCESS, 0)));
}

std::vector<std::jthread> start_threads(std::size_t count, const std::string& name,
                                        const std::function<void()>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) {
      threads.emplace_back([name, body] {
        enter_own_thread(name);
        body();
      });
    }
  } catch (const std::system_error& error) {
    log_warning(fmt::format("only {} of {} {} threads could be started: {}", threads.size(), count,
                            name, error.code().message()));
  }
  return threads;
}

}  // namespace deepfreeze
