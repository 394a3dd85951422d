// The threads that serve devices: one gives them their copies, others hand on the bytes that
// arrive. Owned by the engine, joined by the destructor.
#pragma once

#include <cstddef>
#include <memory>

#include "staging/capture_session.h"

namespace deepfreeze {

// Measured with an H200, whose link brings 55 GB/s: four checksum 31 GB/s of it, eight 50.
inline constexpr std::size_t kArrivalThreads = 12;

class DeviceCopier {
 public:
  DeviceCopier();
  ~DeviceCopier();
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;

  // If its threads can't be started it does nothing: ask works().
  [[nodiscard]] bool works() const;

  // Serves `session` until it is finished or cancelled. It replaces the previous session, which
  // must have ended. Call again after further releases. Does not wait. Any thread.
  void serve(const CaptureSession& session);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze
