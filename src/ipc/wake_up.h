// Wakes a thread that waits in poll(). notify() from any thread, the rest by the one that waits.
#pragma once

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

class WakeUp {
 public:
  [[nodiscard]] static Result<WakeUp> make();
  void notify() const;
  // Until the next notify() nothing is to be read.
  void clear() const;
  [[nodiscard]] int fd() const { return file_.get(); }  // can be read after notify()

 private:
  explicit WakeUp(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace deepfreeze
