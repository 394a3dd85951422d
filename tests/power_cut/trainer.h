// A process that saves one checkpoint after another until it dies, and says which are durable; or
// the `deepfreeze` program on the same run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "deepfreeze/options.h"

namespace deepfreeze {

// No agent can be there, below a file, but everything that one would need is written down.
inline Agent no_agent() { return {.directory = std::string(__FILE__) + "/none", .command = {}}; }

// The program as a function of this process; its exit status.
[[nodiscard]] int call_program(const std::vector<std::string>& words);

struct TrainerPlan {
  std::filesystem::path run;
  std::string fail_point;  // the point at which it dies, as DEEPFREEZE_FAIL; empty: none
  std::vector<std::string> program = {};  // arguments of the program, called in place of training
  bool is_buffered = false;               // data go by the page cache: only a sync writes them
};

// The run's farther tier, which is on the same disk.
[[nodiscard]] inline std::string far_of(const std::filesystem::path& run) {
  return run.string() + "-far";
}

class Trainer {
 public:
  explicit Trainer(const TrainerPlan& plan);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();  // kills it

  // Waits until so many are durable, it has died, or a second is over.
  void wait_for_saves(std::size_t count);
  [[nodiscard]] bool wait_for_death(std::uint32_t milliseconds);
  [[nodiscard]] bool was_killed() const;  // and did not end by itself
  void kill();
  // All steps that it has called durable; after kill().
  [[nodiscard]] std::vector<std::uint64_t> acknowledged();

 private:
  void collect(int wait_milliseconds);

  pid_t process_ = -1;
  UniqueFd said_;  // its end of a pipe
  std::vector<std::uint64_t> acknowledged_;
  bool dead_ = false;
  int end_ = 0;  // as waitpid() says it
};

}  // namespace deepfreeze
