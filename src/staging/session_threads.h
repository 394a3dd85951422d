// Threads that stay and serve one capture session after the other: always the newest. Owned by the
// engine, joined by the destructor.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "staging/capture_session.h"

namespace deepfreeze {

// Threads that do the same to a session; their work must not throw.
struct SessionRole {
  std::string name;  // 15 characters at most
  std::size_t thread_count = 1;
  void (*work)(CaptureSession& session);
};

class SessionThreads {
 public:
  explicit SessionThreads(const std::vector<SessionRole>& roles);
  ~SessionThreads();
  SessionThreads(const SessionThreads&) = delete;
  SessionThreads& operator=(const SessionThreads&) = delete;

  // If a role has no thread, because none can be started, the sessions are not served.
  [[nodiscard]] bool works() const;

  // Each thread serves `session` once; it replaces the previous session. Call again after further
  // releases. Never waits. Any thread.
  void serve(const CaptureSession& session);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze
