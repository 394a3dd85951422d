#include "storage/uring_queue.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/checked_math.h"
#include "base/try.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

constexpr int kSubmitTriesMax = 100;  // while the kernel is short of memory
constexpr std::chrono::milliseconds kPause{1};

// Orders the opening of a ring after earlier closings: the new ring may use memory that another
// thread gave back with an old one. liburing makes its own system calls, which ThreadSanitizer does
// not see.
std::atomic<unsigned> ends = 0;

Status check_operations(io_uring& ring) {
  const std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(
      io_uring_get_probe_ring(&ring), &io_uring_free_probe);
  if (probe && io_uring_opcode_supported(probe.get(), IORING_OP_WRITE) != 0 &&
      io_uring_opcode_supported(probe.get(), IORING_OP_WRITE_FIXED) != 0) {
    return {};
  }
  return fail(ErrorCode::kUnsupported, "set up io_uring: this kernel has no plain writes in it");
}

}  // namespace

std::vector<iovec> split_for_registration(std::span<std::byte> memory,
                                          std::size_t piece_bytes_max) {
  std::vector<iovec> pieces;
  pieces.reserve(ceil_div(memory.size(), piece_bytes_max));
  while (!memory.empty()) {
    const std::size_t bytes = std::min(memory.size(), piece_bytes_max);
    pieces.push_back({.iov_base = memory.data(), .iov_len = bytes});
    memory = memory.subspan(bytes);
  }
  return pieces;
}

// No set-up flags are needed: every kernel since 5.6 supports the operations used here.
Result<std::unique_ptr<UringQueue>> UringQueue::open(unsigned depth) {
  io_uring ring = {};
  const int failed = io_uring_queue_init(std::clamp(depth, 1U, kUringDepthMax), &ring, 0);
  if (failed != 0) {
    const Error error = os_fail("set up", "io_uring", -failed).error();
    return fail(ErrorCode::kUnsupported, error.message(), -failed);
  }
  std::ignore = ends.load(std::memory_order_acquire);
  auto queue = std::make_unique<UringQueue>(ring);
  DF_TRY_VOID(check_operations(queue->ring_));
  DF_TRY_VOID(queue->try_out());
  return queue;
}

UringQueue::UringQueue(const io_uring& ring) : ring_(ring), owner_(::getpid()) {}

// The buffers first and by name: a forked child may keep the ring open long after us, and with it
// pages that count as locked.
UringQueue::~UringQueue() {
  if (::getpid() == owner_) unregister_memory();
  ends.fetch_add(1, std::memory_order_release);
  io_uring_queue_exit(&ring_);
}

// A sandbox may allow the set-up and refuse the rest.
Status UringQueue::try_out() {
  io_uring_prep_nop(io_uring_get_sqe(&ring_));
  if (const Status sent = send(); !sent) {
    return fail(ErrorCode::kUnsupported, sent.error().message(), sent.error().os_errno());
  }
  std::ignore = reap();
  return {};
}

Status UringQueue::register_memory(std::span<std::byte> memory, std::size_t piece_bytes_max) {
  unregister_memory();
  if (memory.empty()) return {};
  const std::vector<iovec> pieces = split_for_registration(memory, piece_bytes_max);
  const int failed =
      io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
  if (failed != 0) {
    return os_fail("register", fmt::format("{} bytes with io_uring", memory.size()), -failed);
  }
  memory_ = memory;
  piece_bytes_ = piece_bytes_max;
  return {};
}

void UringQueue::unregister_memory() {
  if (!memory_.empty()) io_uring_unregister_buffers(&ring_);
  memory_ = {};
}

// The registered piece that holds all of `bytes`.
std::optional<int> UringQueue::piece_of(std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
  if (begin < base || begin + bytes.size() > base + memory_.size()) return std::nullopt;
  const std::size_t piece = (begin - base) / piece_bytes_;
  if (begin - base + bytes.size() > (piece + 1) * piece_bytes_) return std::nullopt;
  return static_cast<int>(piece);
}

Status UringQueue::submit(const UringWrite& write) {
  io_uring_sqe* entry = is_broken() || ::getpid() != owner_ ? nullptr : io_uring_get_sqe(&ring_);
  if (entry == nullptr) return fail(ErrorCode::kUnsupported, "submit to io_uring: not usable");
  const auto count = static_cast<unsigned>(write.bytes.size());
  if (const auto piece = piece_of(write.bytes)) {
    io_uring_prep_write_fixed(entry, write.fd, write.bytes.data(), count, write.offset, *piece);
  } else {
    io_uring_prep_write(entry, write.fd, write.bytes.data(), count, write.offset);
  }
  io_uring_sqe_set_data64(entry, write.tag);
  return send();
}

// An entry that the kernel did not take stays in the queue, and the next call would send it: by
// then its memory and descriptor may be something else's. So there is no next call.
Status UringQueue::send() {
  int cause = EAGAIN;
  for (int tries = 0; tries < kSubmitTriesMax; ++tries) {
    const int taken = io_uring_submit(&ring_);
    if (taken > 0) return {};
    cause = taken == 0 ? EAGAIN : -taken;
    if (cause != EAGAIN && cause != EBUSY && cause != EINTR) break;
    std::this_thread::sleep_for(kPause);
  }
  broken_.store(true, std::memory_order_relaxed);
  return os_fail("submit to", "io_uring", cause);
}

// Waits without a bound: the kernel has the memory until the completion came.
UringDone UringQueue::reap() {
  io_uring_cqe* entry = nullptr;
  while (const int failed = io_uring_wait_cqe(&ring_, &entry)) {
    if (failed != -EINTR) std::this_thread::sleep_for(kPause);
  }
  const UringDone done = {.tag = entry->user_data, .result = entry->res};
  io_uring_cqe_seen(&ring_, entry);
  return done;
}

}  // namespace deepfreeze
