// Chooses how the engine's data files are written: io_uring, O_DIRECT threads, or the page cache.
//
// Owned by the engine for its whole life, because the ring and the registration of the arena
// outlive a save. open() finds out which modes this machine allows; each step down is logged once.
// Calls by one thread at a time; the writers it starts are used as PartWriter says.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "pipeline/part_writer.h"
#include "storage/vfs.h"

namespace deepfreeze {

class PartFiles;
class UringQueue;

enum class IoMode : std::uint8_t { kAuto, kUring, kDirect, kBuffered };

// DEEPFREEZE_IO is "uring", "direct" or "buffered"; kAuto if it is empty or not set, and
// kInvalidArgument for anything else.
[[nodiscard]] Result<IoMode> io_mode_from_environment();

struct WriteOptions {
  // The mode to begin with; kAuto means kUring if the kernel offers it. A file system without
  // direct writes brings every mode down to the page cache.
  IoMode mode = IoMode::kAuto;
  std::size_t writes_in_flight = 4;  // of one slab each: the ring's depth, or threads
};

class WriteEngine {
 public:
  // kUnsupported if kUring is asked for by name and not available.
  [[nodiscard]] static Result<std::unique_ptr<WriteEngine>> open(WriteOptions options);
  WriteEngine(std::unique_ptr<UringQueue> queue, IoMode mode, std::size_t writes_in_flight);
  ~WriteEngine();

  // Registers the memory that images will lie in, in place of any earlier registration; an empty
  // span registers nothing, and the same span again does nothing. Only while no writer of this
  // engine exists. The kernel keeps references to these very pages, so the caller ends the
  // registration with use_memory({}) *before* it unmaps or moves them. If the kernel refuses
  // (RLIMIT_MEMLOCK), writes go unregistered, which is logged once. Other memory may be written
  // too.
  void use_memory(std::span<std::byte> memory);

  // One io_uring writer at a time; a second one beside it writes with threads. The engine outlives
  // its writers. In a forked child: kUnsupported.
  [[nodiscard]] Result<std::unique_ptr<PartWriter>> start(Vfs& vfs, PartSpec spec);

  // The mode in use now, after any steps down.
  [[nodiscard]] IoMode mode() const { return mode_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t registered_bytes() const;

 private:
  void come_down(IoMode mode, std::string_view why);
  [[nodiscard]] bool may_borrow_queue(const PartFiles& part);

  const pid_t owner_;
  const std::unique_ptr<UringQueue> queue_;  // null: no io_uring
  std::atomic<bool> queue_is_lent_{false};
  std::atomic<IoMode> mode_;     // relaxed: it guards nothing
  std::span<std::byte> memory_;  // as use_memory() was told, registered or not
  bool has_told_unregistered_ = false;
  const std::size_t writes_in_flight_;
};

}  // namespace deepfreeze
