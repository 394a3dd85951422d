// The one thread that copies while training runs. Owned by the engine, joined by the destructor.
#pragma once

#include <memory>

#include "staging/capture_session.h"

namespace deepfreeze {

class BackgroundCopier {
 public:
  // If its thread can't be started it does nothing: ask works().
  BackgroundCopier();
  ~BackgroundCopier();
  BackgroundCopier(const BackgroundCopier&) = delete;
  BackgroundCopier& operator=(const BackgroundCopier&) = delete;

  [[nodiscard]] bool works() const;

  // Copies the released groups of `session`, which replaces the previous session. Call again after
  // further releases. Never waits. Any thread.
  void serve(const CaptureSession& session);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze
