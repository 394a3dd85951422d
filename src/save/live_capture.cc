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

CaptureSpec LiveCapture::with_callbacks(CaptureSpec spec, const std::shared_ptr<Parts>& parts) {
  // The queue has room for every slab once, so no copier ever waits here.
  spec.on_slab = [parts](std::size_t slab) { parts->slabs.push(slab); };
  spec.on_copied = [parts] { parts->copied(); };
  spec.on_done = [parts] { parts->checksummed(); };
  spec.on_error = [parts](const Error& error) { parts->failed(error); };
  return spec;
}

LiveCapture::LiveCapture(CaptureSpec spec)
    : parts_(std::make_shared<Parts>(std::max<std::size_t>(1, spec.image.slab_count()))),
      session_(with_callbacks(std::move(spec), parts_)) {}

void LiveCapture::Parts::copied() {
  std::shared_ptr<CaptureOwner> told;
  {
    const std::lock_guard lock(mutex);
    is_copied = true;
    told = owner;
  }
  if (told) told->copied();
}

void LiveCapture::Parts::checksummed() {
  std::shared_ptr<CaptureOwner> told;
  {
    const std::lock_guard lock(mutex);
    is_checksummed = true;
    told = std::exchange(owner, nullptr);
  }
  if (told) told->checksummed();
}

void LiveCapture::Parts::failed(const Error& cause) {
  std::shared_ptr<CaptureOwner> told;
  {
    const std::lock_guard lock(mutex);
    error = with_memory(cause, [](const Error& known) { return known; });
    told = std::exchange(owner, nullptr);
  }
  if (told) with_memory(cause, [&](const Error& known) { told->capture_failed(known); });
}

void LiveCapture::belongs_to(std::shared_ptr<CaptureOwner> owner) {
  std::optional<Error> known;
  bool is_copied = false;
  bool is_checksummed = false;
  {
    const std::lock_guard lock(parts_->mutex);
    known = parts_->error;
    is_copied = parts_->is_copied;
    is_checksummed = parts_->is_checksummed;
    if (!known && !is_checksummed) parts_->owner = owner;
  }
  if (known) return owner->capture_failed(*known);
  if (is_copied) owner->copied();
  if (is_checksummed) owner->checksummed();
}

bool LiveCapture::has_failed() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->error.has_value();
}

void LiveCapture::cancel() {
  session_.cancel();
  end_slabs();
  std::shared_ptr<CaptureOwner> dropped;  // its destructor must not run under the lock
  const std::lock_guard lock(parts_->mutex);
  std::swap(dropped, parts_->owner);
}

}  // namespace deepfreeze
