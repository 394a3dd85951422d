#include "engine/live_capture.h"

#include <algorithm>
#include <utility>

namespace deepfreeze {

CapturePlan LiveCapture::with_callbacks(CapturePlan plan, const std::shared_ptr<Parts>& parts) {
  // The queue has room for every slab once, so no copier ever waits here.
  plan.on_slab = [parts](std::size_t slab) { parts->slabs.push(slab); };
  plan.on_done = [parts] { parts->copied(); };
  return plan;
}

LiveCapture::LiveCapture(CapturePlan plan)
    : parts_(std::make_shared<Parts>(std::max<std::size_t>(1, plan.image.slab_count()))),
      session_(with_callbacks(std::move(plan), parts_)) {}

void LiveCapture::Parts::copied() {
  std::function<void()> due;
  {
    const std::lock_guard lock(mutex);
    is_copied = true;
    due = std::move(action);
    action = nullptr;
  }
  if (due) due();
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
  std::function<void()> dropped;  // its destructor must not run under the lock
  const std::lock_guard lock(parts_->mutex);
  std::swap(dropped, parts_->action);
}

}  // namespace deepfreeze
