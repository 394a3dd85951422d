// A process that saves one checkpoint after another until it dies, and says which are durable.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace deepfreeze {

struct TrainerPlan {
  std::filesystem::path run;
  std::string fail_point;  // where it dies by itself, as DEEPFREEZE_FAIL; empty: nowhere
};

class Trainer {
 public:
  explicit Trainer(const TrainerPlan& plan);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();  // kills it

  // Waits until it saves, has died, or a second is over.
  void wait_until_saving();
  [[nodiscard]] bool wait_for_death(std::uint32_t milliseconds);
  void kill();
  // All steps that it has called durable; after kill().
  [[nodiscard]] std::vector<std::uint64_t> acknowledged();

 private:
  void collect(int wait_milliseconds);

  pid_t process_ = -1;
  UniqueFd said_;  // its end of a pipe
  std::vector<std::uint64_t> acknowledged_;
  bool dead_ = false;
};

}  // namespace deepfreeze
