#include "pipeline/write_engine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "pipeline/part_files.h"
#include "pipeline/threaded_part_writer.h"
#include "pipeline/uring_part_writer.h"

namespace deepfreeze {
namespace {

// In the order of IoMode.
constexpr std::array<std::string_view, 4> kModeNames = {"", "uring", "direct", "buffered"};
constexpr std::size_t kWritesInFlightMax = kWriteThreadsMax;
static_assert(kWritesInFlightMax <= kUringDepthMax);

void log_step_down(IoMode mode, std::string_view why) {
  if (mode == IoMode::kDirect) {
    return log_note(fmt::format(
        "writes go by O_DIRECT threads instead, as fast while a core is idle: {}", why));
  }
  log_warning(fmt::format("writes go by the page cache instead: {}", why));
}

// How much memory the process may lock, if that limit is why the kernel refused.
std::optional<rlim_t> locking_limit(const Error& error) {
  rlimit limit = {};
  if (error.os_errno() != ENOMEM || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

constexpr double kMiB = 1024.0 * 1024.0;

// Saves are as fast without it: docs/decisions/0007.
void log_unregistered(const Error& error, std::size_t bytes) {
  const auto limit = locking_limit(error);
  if (!limit) {
    return log_note(fmt::format("{}: saves go on without that, as fast", error.message()));
  }
  log_note(fmt::format(
      "saves are as fast and as safe as ever, though {:.0f} MiB could not be registered with "
      "io_uring: this process may lock {:.0f} MiB. To have no such note, raise that limit (ulimit "
      "-l unlimited; docker run --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity)",
      static_cast<double>(bytes) / kMiB, static_cast<double>(*limit) / kMiB));
}

}  // namespace

Result<IoMode> io_mode_from_environment() {
  const char* value = std::getenv("DEEPFREEZE_IO");
  const std::string_view text = value == nullptr ? "" : value;
  const auto found = std::ranges::find(kModeNames, text);
  if (found != kModeNames.end()) return static_cast<IoMode>(found - kModeNames.begin());
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("DEEPFREEZE_IO=\"{}\": choose uring, direct or buffered", text));
}

Result<std::unique_ptr<WriteEngine>> WriteEngine::open(WriteOptions options) {
  const auto in_flight = std::clamp<std::size_t>(options.writes_in_flight, 1, kWritesInFlightMax);
  if (options.mode == IoMode::kDirect || options.mode == IoMode::kBuffered) {
    return std::make_unique<WriteEngine>(nullptr, options.mode, in_flight);
  }
  auto queue = UringQueue::open(static_cast<unsigned>(in_flight));
  if (queue) return std::make_unique<WriteEngine>(*std::move(queue), IoMode::kUring, in_flight);
  if (options.mode == IoMode::kUring) {
    return std::unexpected(queue.error().within("DEEPFREEZE_IO=uring"));
  }
  log_step_down(IoMode::kDirect, queue.error().message());
  return std::make_unique<WriteEngine>(nullptr, IoMode::kDirect, in_flight);
}

WriteEngine::WriteEngine(std::unique_ptr<UringQueue> queue, IoMode mode,
                         std::size_t writes_in_flight)
    : owner_(::getpid()),
      queue_(std::move(queue)),
      mode_(mode),
      writes_in_flight_(writes_in_flight) {}

WriteEngine::~WriteEngine() = default;

void WriteEngine::use_memory(std::span<std::byte> memory) {
  const bool is_same = memory.data() == memory_.data() && memory.size() == memory_.size();
  if (!queue_ || is_same || owner_ != ::getpid()) return;
  memory_ = memory;
  const Status registered = queue_->register_memory(memory);
  // Told once: a refusal of this memory also holds for the next.
  if (!registered && !std::exchange(has_told_unregistered_, true)) {
    log_unregistered(registered.error(), memory.size());
  }
}

std::size_t WriteEngine::registered_bytes() const {
  return queue_ ? queue_->registered_bytes() : 0;
}

Result<std::unique_ptr<PartWriter>> WriteEngine::start(Vfs& vfs, PartSpec spec) {
  if (owner_ != ::getpid()) {
    return fail(ErrorCode::kUnsupported, "write the files of a part: in a forked process");
  }
  if (queue_ && queue_->is_broken()) come_down(IoMode::kDirect, "io_uring failed");
  const Access wanted = mode() == IoMode::kBuffered ? Access::kBuffered : Access::kDirect;
  DF_TRY(auto part, PartFiles::create(vfs, std::move(spec), wanted));
  if (part->access() != wanted) {
    come_down(IoMode::kBuffered, "the file system takes no direct writes");
  }
  if (may_borrow_queue(*part)) {
    LentQueue queue(queue_.get(), GiveBackQueue{&queue_is_lent_});
    return make_uring_part_writer(std::move(part), std::move(queue), writes_in_flight_);
  }
  return make_threaded_part_writer(std::move(part), writes_in_flight_);
}

void WriteEngine::come_down(IoMode mode, std::string_view why) {
  // The modes are in order, best first.
  if (mode_.load(std::memory_order_relaxed) >= mode) return;
  mode_.store(mode, std::memory_order_relaxed);
  log_step_down(mode, why);
}

bool WriteEngine::may_borrow_queue(const PartFiles& part) {
  const bool fits = mode() == IoMode::kUring && part.have_native_fds();
  // acquire: the previous writer's changes to the queue.
  return fits && !queue_is_lent_.exchange(true, std::memory_order_acquire);
}

}  // namespace deepfreeze
