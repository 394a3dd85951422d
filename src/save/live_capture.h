// One capture from its first released group to its end, and its output to the writer: shared by the
// caller's thread, the copiers and the worker that writes. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bounded_queue.h"
#include "staging/capture_session.h"

namespace deepfreeze {

// The save that a capture belongs to.
class CaptureOwner {
 public:
  virtual ~CaptureOwner() = default;
  // All is copied, and no source is read any more; called on the thread that copied the last piece.
  virtual void copied() = 0;
  // All blocks have their checksums, and all slabs were announced; on the thread that made the last
  // one. It may come before copied() has returned.
  virtual void checksummed() = 0;
  // A device has failed.
  virtual void capture_failed(const Error& error) = 0;
};

class LiveCapture {
 public:
  // `spec` without its callbacks: they are set here.
  explicit LiveCapture(CaptureSpec spec);

  [[nodiscard]] CaptureSession& session() { return session_; }

  // Whether groups were released before the save() that it belongs to.
  void mark_early() { began_early_ = true; }
  [[nodiscard]] bool began_early() const { return began_early_; }

  // Slabs in the order in which they fill; empty after end_slabs().
  [[nodiscard]] std::optional<std::size_t> next_slab() { return parts_->slabs.pop(); }
  void end_slabs() { parts_->slabs.close(); }

  // `owner` is told that all is copied and that all is checksummed, or that the capture has failed;
  // Events that came before this call are told at once. At the end, or by cancel(), it is let go:
  // it may own this.
  void belongs_to(std::shared_ptr<CaptureOwner> owner);
  [[nodiscard]] bool has_failed() const;

  // Nothing more is copied or announced; the image is free when it returns.
  void cancel();

 private:
  // The part that the session's threads call: it must not own the session that owns it.
  struct Parts {
    explicit Parts(std::size_t slab_count) : slabs(slab_count) {}
    void copied();
    void checksummed();
    void failed(const Error& error);
    BoundedQueue<std::size_t> slabs;
    std::mutex mutex;                     // guards all below
    std::shared_ptr<CaptureOwner> owner;  // from belongs_to() until the capture has ended
    bool is_copied = false;
    bool is_checksummed = false;
    std::optional<Error> error;
  };
  [[nodiscard]] static CaptureSpec with_callbacks(CaptureSpec spec,
                                                  const std::shared_ptr<Parts>& parts);

  std::shared_ptr<Parts> parts_;  // also held by the session's callbacks
  CaptureSession session_;
  bool began_early_ = false;  // by the caller's thread
};

}  // namespace deepfreeze
