// Threads that help to copy. Owned by the engine, joined by the destructor.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "staging/capture_session.h"

namespace deepfreeze {

class CopierPool {
 public:
  // Starts at most kCopyThreadsMax threads, fewer if the system refuses more: the caller copies
  // too.
  explicit CopierPool(std::size_t thread_count);
  ~CopierPool();
  CopierPool(const CopierPool&) = delete;
  CopierPool& operator=(const CopierPool&) = delete;

  // Copies one group on the pool and the calling thread; returns when no thread reads its sources
  // any more. Any thread; if two run at once, the pool helps the later one. Sources on devices are
  // left to `streams`: CaptureSession::fence().
  void run(CaptureSession& session, std::uint32_t group,
           std::span<const DeviceStream> streams = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepfreeze
