#include "save/live_capture.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace deepfreeze {

namespace {

// For threads that must not throw. If there is no memory for the error, another one is reported,
// whose text is short enough to need none.
template <class Use>
auto with_memory(const Error& error, const Use& use) {
  try {
    return use(error);
  } catch (const std::exception&) {
    return use(Error(ErrorCode::kNoSpace, "out of memory"));
  }
}

}  // namespace

CapturePlan LiveCapture::with_callbacks(CapturePlan plan, const std::shared_ptr<Parts>& parts) {
  // The queue has room for every slab once, so no copier ever waits here.
  plan.on_slab = [parts](std::size_t slab) { parts->slabs.push(slab); };
  plan.on_done = [parts] { parts->copied(); };
  plan.on_error = [parts](const Error& error) { parts->failed(error); };
  return plan;
}

LiveCapture::LiveCapture(CapturePlan plan)
    : parts_(std::make_shared<Parts>(std::max<std::size_t>(1, plan.image.slab_count()))),
      session_(with_callbacks(std::move(plan), parts_)) {}

void LiveCapture::Parts::copied() {
  std::function<void()> due;
  std::function<void(const Error&)> dropped;  // nothing is left to fail; it may own the session
  {
    const std::lock_guard lock(mutex);
    is_copied = true;
    due = std::exchange(action, nullptr);
    dropped = std::exchange(on_failed, nullptr);
  }
  if (due) due();
}

void LiveCapture::Parts::failed(const Error& cause) {
  std::function<void(const Error&)> due;
  {
    const std::lock_guard lock(mutex);
    error = with_memory(cause, [](const Error& known) { return known; });
    due = std::exchange(on_failed, nullptr);
  }
  if (due) with_memory(cause, due);
}

void LiveCapture::when_failed(std::function<void(const Error&)> action) {
  std::optional<Error> known;
  {
    const std::lock_guard lock(parts_->mutex);
    known = parts_->error;
    if (!known && !parts_->is_copied) parts_->on_failed = std::move(action);
  }
  if (known) action(*known);
}

bool LiveCapture::has_failed() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->error.has_value();
}

void LiveCapture::when_copied(std::function<void()> action) {
  {
    const std::lock_guard lock(parts_->mutex);
    if (!parts_->is_copied) {
      parts_->action = std::move(action);
      return;
    }
  }
  action();
}

void LiveCapture::cancel() {
  session_.cancel();
  end_slabs();
  std::function<void()> dropped;  // their destructors must not run under the lock
  std::function<void(const Error&)> dropped_too;
  const std::lock_guard lock(parts_->mutex);
  std::swap(dropped, parts_->action);
  std::swap(dropped_too, parts_->on_failed);
}

}  // namespace deepfreeze
