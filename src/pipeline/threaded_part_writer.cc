#include "pipeline/threaded_part_writer.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/named_threads.h"

namespace deepfreeze {
namespace {

class ThreadedPartWriter final : public PartWriter {
 public:
  ThreadedPartWriter(std::unique_ptr<PartFiles> part, std::size_t thread_count)
      : PartWriter(std::move(part)), queue_(part_->slab_count()) {
    threads_ = start_threads(thread_count, "df-write", [this] { drain(); });
  }
  ~ThreadedPartWriter() override {
    cancel();
    join();
  }

  void push(std::size_t slab_index) override;

 private:
  void drain();
  void join() override;
  void write(std::size_t slab_index);

  BoundedQueue<std::size_t> queue_;    // has room for every slab once, so push() does not wait
  std::vector<std::jthread> threads_;  // last: they use all above
};

// If no thread could be started, the caller's thread writes everything.
void ThreadedPartWriter::push(std::size_t slab_index) {
  if (!part_->admit(slab_index)) return;
  if (threads_.empty()) return write(slab_index);
  queue_.push(slab_index);
}

// The body of a thread: writes queued slabs until the queue is closed. After a failure the
// remaining ones are only given up.
void ThreadedPartWriter::drain() {
  while (const auto slab_index = queue_.pop()) write(*slab_index);
}

void ThreadedPartWriter::write(std::size_t slab_index) {
  const Status may_start = part_->may_start();
  part_->settle(slab_index, may_start ? part_->write_from(slab_index, 0) : may_start);
}

void ThreadedPartWriter::join() {
  queue_.close();
  threads_.clear();
}

}  // namespace

std::unique_ptr<PartWriter> make_threaded_part_writer(std::unique_ptr<PartFiles> part,
                                                      std::size_t thread_count) {
  const std::size_t wanted = std::clamp<std::size_t>(thread_count, 1, kWriteThreadsMax);
  const std::size_t useful = std::min(wanted, part->slab_count());
  return std::make_unique<ThreadedPartWriter>(std::move(part), useful);
}

}  // namespace deepfreeze
