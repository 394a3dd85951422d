// The one thread that copies while training runs. Owned by the engine, joined by the destructor.
#pragma once

#include <memory>

#include "staging/capture_session.h"

namespace deepfreeze {

class BackgroundCopier {
 public:
  // Where no thread can be started it does nothing: ask works().
  BackgroundCopier();
  ~BackgroundCopier();
  BackgroundCopier(const BackgroundCopier&) = delete;
  BackgroundCopier& operator=(const BackgroundCopier&) = delete;

  [[nodiscard]] bool works() const;

  // Copies what is released of `session`, in place of the one before. Again after more was
  // released. Never waits. Any thread.
  void serve(const CaptureSession& session);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze
