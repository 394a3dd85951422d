#include "pipeline/uring_part_writer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fail_point.h"
#include "base/named_threads.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

// Errors after which a plain write may still succeed, or explain the failure better. The others are
// final: after an error of the device nothing is written a second time.
bool is_worth_a_plain_write(int os_errno) {
  return os_errno == EINTR || os_errno == EAGAIN || os_errno == ECANCELED || os_errno == EINVAL;
}

class UringPartWriter final : public PartWriter {
 public:
  UringPartWriter(std::unique_ptr<PartFiles> part, LentQueue queue, std::size_t in_flight_max)
      : PartWriter(std::move(part)), queue_(std::move(queue)), in_flight_max_(in_flight_max) {
    reaper_ = start_threads(1, "df-write", [this] { reap_all(); });
  }
  ~UringPartWriter() override {
    cancel();
    join();
  }

  void push(std::size_t slab_index) override;

 private:
  [[nodiscard]] Result<bool> submit(std::size_t slab_index);
  void wait_for_room();
  void count_submitted();
  [[nodiscard]] bool wait_for_writes();
  void count_reaped();
  void reap_all();
  [[nodiscard]] Status complete(std::size_t slab_index, int result);
  void join() override;

  const LentQueue queue_;
  const std::size_t in_flight_max_;
  std::atomic<std::uint64_t> handed_over_{0};
  // Held while a write is submitted, because the queue takes one submitter at a time.
  std::mutex submitting_;

  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::size_t in_flight_ = 0;
  bool closed_ = false;

  std::vector<std::jthread> reaper_;  // last: it uses all above
};

// Writes a slab on this thread if the queue does not accept it.
void UringPartWriter::push(std::size_t slab_index) {
  if (!part_->admit(slab_index)) return;
  const Result<bool> submitted = submit(slab_index);
  if (submitted && *submitted) return;  // the reaper settles it
  part_->settle(slab_index, submitted ? part_->write_from(slab_index, 0)
                                      : Status(std::unexpected(submitted.error())));
}

// Returns false if the queue cannot write this slab.
Result<bool> UringPartWriter::submit(std::size_t slab_index) {
  const std::lock_guard one_at_a_time(submitting_);
  wait_for_room();
  DF_TRY_VOID(part_->may_start());
  const auto bytes = part_->even_part(slab_index);
  const bool possible = !bytes.empty() && !reaper_.empty() && part_->access() == Access::kDirect;
  handed_over_.fetch_add(1, std::memory_order_release);  // shows the slab's bytes to the reaper
  if (!possible || !queue_->submit({.fd = part_->native_fd(slab_index).value_or(-1),
                                    .offset = part_->offset_of(slab_index),
                                    .bytes = bytes,
                                    .tag = slab_index})) {
    return false;
  }
  count_submitted();
  return true;
}

void UringPartWriter::wait_for_room() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ < in_flight_max_; });
}

// After the submission: the reaper must never wait in the kernel for a write that was refused.
void UringPartWriter::count_submitted() {
  const std::lock_guard lock(mutex_);
  ++in_flight_;
  changed_.notify_all();
}

// False once there is none and none will come.
bool UringPartWriter::wait_for_writes() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return in_flight_ > 0 || closed_; });
  return in_flight_ > 0;
}

void UringPartWriter::count_reaped() {
  const std::lock_guard lock(mutex_);
  --in_flight_;
  changed_.notify_all();
}

void UringPartWriter::reap_all() {
  while (wait_for_writes()) {
    const UringDone done = queue_->reap();
    // acquire: pairs with submit(). The kernel stands between the two, which the language ignores.
    std::ignore = handed_over_.load(std::memory_order_acquire);
    part_->settle(done.tag, complete(done.tag, done.result));
    count_reaped();
  }
}

// `result` is the number of bytes written, or -errno.
Status UringPartWriter::complete(std::size_t slab_index, int result) {
  DF_FAIL_POINT("part.complete");
  if (result < 0 && !is_worth_a_plain_write(-result)) {
    return std::unexpected(part_->write_failed(slab_index, -result));
  }
  return part_->write_from(slab_index, static_cast<std::uint64_t>(std::max(result, 0)));
}

// Ends when the last completion is in: until then the kernel reads the slabs.
void UringPartWriter::join() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  reaper_.clear();
}

}  // namespace

std::unique_ptr<PartWriter> make_uring_part_writer(std::unique_ptr<PartFiles> part, LentQueue queue,
                                                   std::size_t in_flight_max) {
  return std::make_unique<UringPartWriter>(std::move(part), std::move(queue), in_flight_max);
}

}  // namespace deepfreeze
