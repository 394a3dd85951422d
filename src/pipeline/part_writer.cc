// The steps are those of the commit protocol (src/manifest/commit.cc) that concern one file:
//   2. Data: create, reserve space, write the slabs, cut to the exact size, sync.
//   3. Header: write it in front of the data, sync, close.
// A file without a header is refused by every reader, so a power cut before step 3 leaves
// nothing that could pass for a part. Nothing is tried twice: after a failed sync the kernel may
// hold pages that it calls clean and that never reached the device.
#include "pipeline/part_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/checked_math.h"
#include "base/fail_point.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

using MakeHeader = std::function<Result<std::vector<std::byte>>()>;

bool is_page_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kPageBytes == 0;
}

Status check(const PartPlan& plan) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("write {}: {}", plan.name, why));
  };
  if (plan.header_bytes == 0 || plan.header_bytes % kPageBytes != 0 ||
      plan.header_bytes > round_up(kHeaderBytesMax, kPageBytes)) {
    return refuse(fmt::format("a header of {} bytes", plan.header_bytes));
  }
  if (!is_page_aligned(plan.data.data())) return refuse("the data begins inside a page");
  if (ceil_div(plan.data.size(), kSlabBytes) > kSlabQueueMax) return refuse("too many slabs");
  return {};
}

// Keeps the first error of several threads, and tells the others to stop.
class FirstError {
 public:
  void set(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    // relaxed: it only saves work; who needs the error itself takes the lock.
    is_set_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_set() const { return is_set_.load(std::memory_order_relaxed); }
  [[nodiscard]] Status status() const {
    const std::lock_guard lock(mutex_);
    if (!error_) return {};
    return std::unexpected(*error_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;  // guarded by mutex_
  std::atomic<bool> is_set_{false};
};

class ThreadedPartWriter final : public PartWriter {
 public:
  ThreadedPartWriter(PartPlan plan, std::unique_ptr<File> file)
      : plan_(std::move(plan)),
        file_(std::move(file)),
        slab_count_(ceil_div(plan_.data.size(), kSlabBytes)),
        pushed_(slab_count_),
        queue_(slab_count_) {
    const std::size_t wanted = std::clamp<std::size_t>(plan_.thread_count, 1, kWriteThreadsMax);
    threads_ = start_threads(std::min(wanted, slab_count_), "df-write", [this] { drain(); });
  }
  ~ThreadedPartWriter() override {
    cancel();
    join();
  }

  void push(std::size_t slab_index) override;
  Status finish(const MakeHeader& make_header) override;
  void cancel() override {
    error_.set(Error(ErrorCode::kCancelled, "write " + plan_.name + ": given up"));
  }
  [[nodiscard]] std::uint64_t bytes_written() const override {
    return bytes_written_.load(std::memory_order_relaxed);  // for display
  }

 private:
  void drain();
  void join();
  [[nodiscard]] Status write_slab(std::size_t slab_index);
  [[nodiscard]] Status write_odd_end(std::uint64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] Status finish_data();
  [[nodiscard]] Status finish_header(const MakeHeader& make_header);
  [[nodiscard]] Status write_header(std::span<const std::byte> header);

  const PartPlan plan_;
  const std::unique_ptr<File> file_;
  const std::size_t slab_count_;
  FirstError error_;
  std::vector<std::atomic<bool>> pushed_;  // by slab
  std::atomic<std::size_t> slabs_written_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
  BoundedQueue<std::size_t> queue_;
  std::vector<std::jthread> threads_;  // last: they use all above
};

// The queue has room for every slab once, so push() never waits.
void ThreadedPartWriter::push(std::size_t slab_index) {
  // relaxed: it only tells the first push of a slab from a second one; the queue orders the data.
  if (slab_index >= slab_count_ || pushed_[slab_index].exchange(true, std::memory_order_relaxed)) {
    return error_.set(
        Error(ErrorCode::kInternal, fmt::format("write {}: slab {} is none of {}, or came twice",
                                                plan_.name, slab_index, slab_count_)));
  }
  queue_.push(slab_index);
}

// One thread's life: writes what is queued until the queue is closed. After a failure the rest
// is only taken out.
void ThreadedPartWriter::drain() {
  while (const auto slab_index = queue_.pop()) {
    if (error_.is_set()) continue;
    if (const Status written = write_slab(*slab_index); !written) error_.set(written.error());
  }
}

void ThreadedPartWriter::join() {
  queue_.close();
  threads_.clear();
}

Status ThreadedPartWriter::write_slab(std::size_t slab_index) {
  DF_FAIL_POINT("part.write");
  const std::uint64_t begin = slab_index * kSlabBytes;
  const auto slab = plan_.data.subspan(begin, std::min(kSlabBytes, plan_.data.size() - begin));
  const std::uint64_t odd_bytes = file_->access() == Access::kDirect ? slab.size() % kPageBytes : 0;
  const std::uint64_t even_bytes = slab.size() - odd_bytes;
  const std::uint64_t offset = plan_.header_bytes + begin;
  if (even_bytes > 0) DF_TRY_VOID(file_->write_at(offset, slab.first(even_bytes)));
  if (odd_bytes > 0) DF_TRY_VOID(write_odd_end(offset + even_bytes, slab.last(odd_bytes)));
  bytes_written_.fetch_add(slab.size(), std::memory_order_relaxed);  // for display
  slabs_written_.fetch_add(1, std::memory_order_relaxed);            // read after join()
  return {};
}

// Direct access writes whole pages; finish_data() cuts the zeros off again.
Status ThreadedPartWriter::write_odd_end(std::uint64_t offset, std::span<const std::byte> bytes) {
  DF_TRY(const MappedMemory page, MappedMemory::allocate(kPageBytes));
  std::memcpy(page.bytes().data(), bytes.data(), bytes.size());
  return file_->write_at(offset, page.bytes());
}

Status ThreadedPartWriter::finish(const MakeHeader& make_header) {
  queue_.close();
  if (threads_.empty()) drain();  // no thread could be started: this one does it all
  join();
  if (const Status data = finish_data(); !data) error_.set(data.error());
  if (error_.is_set()) return error_.status();
  const Status header = finish_header(make_header);
  if (!header) error_.set(header.error());
  return header;
}

Status ThreadedPartWriter::finish_data() {
  DF_TRY_VOID(error_.status());
  if (slabs_written_.load(std::memory_order_relaxed) != slab_count_) {
    return fail(ErrorCode::kInternal, fmt::format("write {}: {} of {} slabs came", plan_.name,
                                                  slabs_written_.load(), slab_count_));
  }
  DF_TRY_VOID(file_->truncate(plan_.header_bytes + plan_.data.size()));
  DF_FAIL_POINT("part.data_written");
  DF_TRY_VOID(file_->sync());
  DF_FAIL_POINT("part.data_synced");
  return {};
}

Status ThreadedPartWriter::finish_header(const MakeHeader& make_header) {
  DF_TRY(const std::vector<std::byte> header, make_header());
  if (header.size() != plan_.header_bytes) {
    return fail(ErrorCode::kInternal, fmt::format("write {}: a header of {} bytes, not {}",
                                                  plan_.name, header.size(), plan_.header_bytes));
  }
  DF_TRY_VOID(error_.status());  // a cancel while the header was made
  DF_TRY_VOID(write_header(header));
  DF_FAIL_POINT("part.header_written");
  DF_TRY_VOID(file_->sync());
  DF_FAIL_POINT("part.header_synced");
  return file_->close();
}

Status ThreadedPartWriter::write_header(std::span<const std::byte> header) {
  DF_TRY(const MappedMemory pages, MappedMemory::allocate(header.size()));
  std::memcpy(pages.bytes().data(), header.data(), header.size());
  DF_TRY_VOID(file_->write_at(0, pages.bytes()));
  bytes_written_.fetch_add(header.size(), std::memory_order_relaxed);  // for display
  return {};
}

}  // namespace

Result<std::unique_ptr<PartWriter>> PartWriter::start(Vfs& vfs, PartPlan plan) {
  static_assert(kSlabBytes % kPageBytes == 0);  // so only the last slab can end inside a page
  DF_TRY_VOID(check(plan));
  DF_TRY(std::unique_ptr<File> file, vfs.create(plan.name, Access::kDirect));
  const std::uint64_t bytes = plan.header_bytes + plan.data.size();
  DF_TRY_VOID(file->preallocate(round_up(bytes, kPageBytes)));
  DF_FAIL_POINT("part.created");
  return std::make_unique<ThreadedPartWriter>(std::move(plan), std::move(file));
}

}  // namespace deepfreeze
