// The one thread that copies while training runs. Owned by the engine, joined by the destructor.
#pragma once

#include <memory>

#include "staging/capture_session.h"

namespace deepfreeze {

// Normal: done soonest, at the cost of whoever shares the core. Idle: only on cores that nobody
// wants; what it does not get done is left to the fence.
enum class CopierPriority : std::uint8_t { kNormal, kIdle };

class BackgroundCopier {
 public:
  // Where no thread can be started it does nothing: ask works().
  explicit BackgroundCopier(CopierPriority priority);
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
