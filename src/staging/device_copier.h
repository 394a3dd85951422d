// The threads that serve devices: one gives them their copies, others hand on what arrives. Owned
// by the engine, joined by the destructor.
#pragma once

#include <cstddef>
#include <memory>

#include "staging/capture_session.h"

namespace deepfreeze {

// One checksums 10 to 20 GB/s: a few are as fast as the fastest link.
inline constexpr std::size_t kArrivalThreads = 4;

class DeviceCopier {
 public:
  DeviceCopier();
  ~DeviceCopier();
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;

  // Where its threads can't be started it does nothing: ask works().
  [[nodiscard]] bool works() const;

  // Serves `session` until it is finished or cancelled, in place of the one before, which must be
  // so by then. Again after more was released. Does not wait. Any thread.
  void serve(const CaptureSession& session);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze
