#include "base/named_threads.h"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>

#include "base/log.h"

namespace deepfreeze {

std::vector<std::jthread> start_threads(std::size_t count, const std::string& name,
                                        const std::function<void()>& body) {
  std::vector<std::jthread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) {
      threads.emplace_back([name, body] {
        ::pthread_setname_np(::pthread_self(), name.c_str());
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
