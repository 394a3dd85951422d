// One capture from its first released group to its end, and its output to the writer: shared by the
// caller's thread, the copiers and the worker that writes. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bounded_queue.h"
#include "staging/capture_session.h"

namespace deepfreeze {

class LiveCapture {
 public:
  // `plan` without on_slab, on_done and on_error: they are set here.
  explicit LiveCapture(CapturePlan plan);

  [[nodiscard]] CaptureSession& session() { return session_; }

  // Whether groups were released before the save() that it belongs to.
  void mark_early() { began_early_ = true; }
  [[nodiscard]] bool began_early() const { return began_early_; }

  // Slabs in the order in which they fill; empty after end_slabs().
  [[nodiscard]] std::optional<std::size_t> next_slab() { return parts_->slabs.pop(); }
  // The slab's place in memory may be used again.
  void slab_released(std::size_t slab) { session_.free_slab(slab); }
  void end_slabs() { parts_->slabs.close(); }

  // Calls `action` once, when all is copied, on the thread that copied the last piece; at once if
  // that has happened. Then, or by cancel(), it is destroyed.
  void when_copied(std::function<void()> action);

  // Calls `action` once if a device has failed; at once if that has happened, never if all is
  // copied. Then, or by cancel(), it is destroyed: it may own this.
  void when_failed(std::function<void(const Error&)> action);
  [[nodiscard]] bool has_failed() const;

  // Nothing more is copied or announced; the image is free when it returns.
  void cancel();

 private:
  // The part that the session's threads call: it must not own the session that owns it.
  struct Parts {
    explicit Parts(std::size_t slab_count) : slabs(slab_count) {}
    void copied();
    void failed(const Error& error);
    BoundedQueue<std::size_t> slabs;
    std::mutex mutex;                             // guards all below
    std::function<void()> action;                 // of when_copied()
    std::function<void(const Error&)> on_failed;  // of when_failed()
    bool is_copied = false;
    std::optional<Error> error;
  };
  [[nodiscard]] static CapturePlan with_callbacks(CapturePlan plan,
                                                  const std::shared_ptr<Parts>& parts);

  std::shared_ptr<Parts> parts_;  // also held by the session's callbacks
  CaptureSession session_;
  bool began_early_ = false;  // by the caller's thread
};

}  // namespace deepfreeze
