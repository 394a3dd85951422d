#include "pipeline/block_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "base/checked_math.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "packed/open_part.h"
#include "pipeline/device_filler.h"
#include "pipeline/first_error.h"
#include "pipeline/read_runs.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

bool is_wrong(const ReadPiece& piece, std::uint64_t data_bytes) {
  return piece.source.begin > piece.source.end || piece.source.end > data_bytes ||
         piece.source.size() != piece.into.size();
}

Status check(const ReadPlan& plan) {
  const auto refuse = [&](std::string why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("read {}: {}", plan.name, why));
  };
  if (plan.header_bytes % kPageBytes != 0) {
    return refuse(fmt::format("a header of {} bytes", plan.header_bytes));
  }
  if (!checked_add(plan.header_bytes, plan.data_bytes) ||
      !checked_add(plan.data_bytes, kBlockBytes)) {
    return refuse("sizes out of range");
  }
  if (plan.verify && plan.block_crcs.size() != block_count(plan.data_bytes)) {
    return refuse(fmt::format("{} checksums for {} blocks", plan.block_crcs.size(),
                              block_count(plan.data_bytes)));
  }
  for (const ReadPiece& piece : plan.pieces) {
    if (!is_wrong(piece, plan.data_bytes)) continue;
    return refuse(fmt::format("bytes {} to {} of {} into {}", piece.source.begin, piece.source.end,
                              plan.data_bytes, piece.into.size()));
  }
  return {};
}

// Else other blocks would have the same error, and the bytes may be good: the file was deleted
// meanwhile, no answer came, the process may not read it, reading was given up. A packed file says
// that stored bytes do not verify.
bool is_of_blocks(const Error& error) {
  return error.code() == ErrorCode::kCorrupt ||
         (error.code() == ErrorCode::kIo && !is_refusal(error));
}

// The results of all threads so far.
class Progress {
 public:
  explicit Progress(const std::function<void(std::uint64_t)>& on_progress)
      : on_progress_(on_progress) {}

  void add_bad(std::uint64_t block, std::string cause) {
    const std::lock_guard lock(mutex_);
    bad_blocks_.emplace(block, std::move(cause));
    if (bad_blocks_.size() > kBadBlocksMax) bad_blocks_.erase(std::prev(bad_blocks_.end()));
  }
  // The one callback under a lock: the caller was promised that it never runs twice at once.
  void add_bytes(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_read_ += bytes;
    if (on_progress_) on_progress_(bytes_read_);
  }
  [[nodiscard]] ReadOutcome outcome() const {
    const std::lock_guard lock(mutex_);
    ReadOutcome found{.bytes_read = bytes_read_, .bad_blocks = {}};
    for (const auto& [index, cause] : bad_blocks_) found.bad_blocks.push_back({index, cause});
    return found;
  }

 private:
  const std::function<void(std::uint64_t)>& on_progress_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::string> bad_blocks_;  // guarded by mutex_
  std::uint64_t bytes_read_ = 0;                     // guarded by mutex_
};

// One thread's reader: its own buffer, of which it fills one run after the other.
class RunReader {
 public:
  RunReader(const ReadPlan& plan, File& file, Progress& progress, std::span<std::byte> buffer)
      : plan_(plan), file_(file), progress_(progress), buffer_(buffer) {}

  // An error is a device's, or says that the file is gone.
  [[nodiscard]] Status read(const ReadRun& run) {
    run_ = run.source;
    good_.assign(ceil_div(run_.size(), kBlockBytes), false);
    DF_TRY_VOID(fill());
    Status scattered;
    for (const ReadPiece& piece : run.pieces) {
      if (scattered) scattered = scatter(piece);
    }
    // After an error too: the buffer must not change while it is copied from.
    const Status arrived = filler_.wait();
    return scattered ? arrived : scattered;
  }

 private:
  [[nodiscard]] Status fill();
  [[nodiscard]] Status fill_block(std::uint64_t index);
  [[nodiscard]] Result<std::uint64_t> read_extent(Extent wanted);
  void judge(std::uint64_t index, std::uint64_t bytes_there);
  [[nodiscard]] Status scatter(const ReadPiece& piece);

  [[nodiscard]] std::uint64_t first_block() const { return run_.begin / kBlockBytes; }
  [[nodiscard]] std::uint64_t index_of(std::uint64_t at) const {
    return (at - run_.begin) / kBlockBytes;
  }
  [[nodiscard]] Extent extent_of(std::uint64_t index) const {
    const std::uint64_t begin = run_.begin + index * kBlockBytes;
    return {begin, std::min(begin + kBlockBytes, run_.end)};
  }
  // The part of the buffer that holds these bytes of the run.
  [[nodiscard]] std::span<std::byte> in_buffer(Extent extent) const {
    return buffer_.subspan(extent.begin - run_.begin, extent.size());
  }

  const ReadPlan& plan_;
  File& file_;
  Progress& progress_;
  const std::span<std::byte> buffer_;
  DeviceFiller filler_{plan_.devices};
  Extent run_;
  std::vector<bool> good_;  // by block of the run
};

// Reads the run in one call; if that fails, block by block, so that a bad sector costs one block.
Status RunReader::fill() {
  const auto count = read_extent(run_);
  if (!count && !is_of_blocks(count.error())) return std::unexpected(count.error());
  for (std::uint64_t i = 0; i < good_.size(); ++i) {
    if (!count) {
      DF_TRY_VOID(fill_block(i));
      continue;
    }
    const std::uint64_t begin = extent_of(i).begin - run_.begin;
    judge(i, *count - std::min(begin, *count));
  }
  if (count) progress_.add_bytes(*count);
  return {};
}

Status RunReader::fill_block(std::uint64_t index) {
  const auto count = read_extent(extent_of(index));
  if (!count && !is_of_blocks(count.error())) return std::unexpected(count.error());
  if (count) {
    judge(index, *count);
    progress_.add_bytes(*count);
  } else {
    progress_.add_bad(first_block() + index, count.error().message());
  }
  return {};
}

// Reads whole pages, as direct access requires; bytes after the extent are not counted.
Result<std::uint64_t> RunReader::read_extent(Extent wanted) {
  const std::uint64_t begin = wanted.begin - run_.begin;
  const auto into = buffer_.subspan(begin, round_up(wanted.size(), kPageBytes));
  DF_TRY(const std::size_t count, file_.read_at(plan_.header_bytes + wanted.begin, into));
  return std::min<std::uint64_t>(count, wanted.size());
}

// `bytes_there`: how many bytes arrived, counted from the beginning of the block.
void RunReader::judge(std::uint64_t index, std::uint64_t bytes_there) {
  const Extent extent = extent_of(index);
  const std::uint64_t block = first_block() + index;
  if (bytes_there < extent.size()) return progress_.add_bad(block, "file ends early");
  const std::uint32_t found = plan_.verify ? crc32c(in_buffer(extent)) : 0;
  const std::uint32_t stored = plan_.verify ? plan_.block_crcs[block] : 0;
  if (found != stored) {
    return progress_.add_bad(block, fmt::format("checksum is {:08x}, not {:08x}", found, stored));
  }
  good_[index] = true;
}

// Copies adjacent good blocks together; blocks that did not verify are not handed out.
Status RunReader::scatter(const ReadPiece& piece) {
  const Extent source = piece.source;
  const auto is_good = [this](std::uint64_t at) { return good_[index_of(at)]; };
  for (std::uint64_t at = source.begin; at < source.end;) {
    std::uint64_t end = at;
    do {
      end = std::min(source.end, extent_of(index_of(end)).end);
    } while (end < source.end && is_good(end) == is_good(at));
    if (is_good(at)) {
      const auto into = piece.into.subspan(at - source.begin, end - at);
      DF_TRY_VOID(filler_.put(in_buffer({at, end}), into, piece.device));
    }
    at = end;
  }
  return {};
}

Result<std::vector<MappedMemory>> make_buffers(std::size_t count, std::uint64_t bytes) {
  std::vector<MappedMemory> buffers;
  buffers.reserve(count);
  while (buffers.size() < count) {
    DF_TRY(MappedMemory buffer, MappedMemory::allocate(bytes));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

// Unpinned buffers only make the copies slower, so a refusal is no error.
Result<std::vector<PinnedMemory>> pin_for_devices(const ReadPlan& plan,
                                                  std::span<const MappedMemory> buffers) {
  std::vector<PinnedMemory> pinned;
  const auto first = std::ranges::find_if(
      plan.pieces, [](const ReadPiece& piece) { return piece.device != kHostMemory; });
  if (first == plan.pieces.end()) return pinned;
  DF_TRY(const auto device, plan.devices->get(first->device));
  for (const MappedMemory& buffer : buffers) {
    auto now = device->pin(buffer.bytes());
    if (now) pinned.push_back(*std::move(now));
  }
  return pinned;
}

std::uint64_t longest(std::span<const ReadRun> runs) {
  std::uint64_t bytes = 0;
  for (const ReadRun& run : runs) bytes = std::max(bytes, run.source.size());
  return bytes;
}

// Each thread takes a buffer, then runs, until none is left. relaxed: both counters only deal out
// numbers; the buffers and runs themselves were ready before the threads started.
class ReadCrew {
 public:
  ReadCrew(const ReadPlan& plan, File& file, std::span<const ReadRun> runs,
           std::span<const MappedMemory> buffers)
      : plan_(plan), file_(file), runs_(runs), buffers_(buffers), progress_(plan.on_progress) {}

  [[nodiscard]] Result<ReadOutcome> run() {
    {
      const auto helpers = start_threads(buffers_.size() - 1, "df-read", [this] { work(); });
      work();
    }  // joined
    DF_TRY_VOID(first_error_.status());
    return progress_.outcome();
  }

 private:
  void work() {
    const std::size_t mine = next_buffer_.fetch_add(1, std::memory_order_relaxed);
    RunReader reader(plan_, file_, progress_, buffers_[mine].bytes());
    while (true) {
      const std::size_t run = next_run_.fetch_add(1, std::memory_order_relaxed);
      if (run >= runs_.size() || first_error_.is_set()) return;
      const Status read = reader.read(runs_[run]);
      if (!read) first_error_.set(read.error());
    }
  }

  const ReadPlan& plan_;
  File& file_;
  const std::span<const ReadRun> runs_;
  const std::span<const MappedMemory> buffers_;
  Progress progress_;
  FirstError first_error_;
  std::atomic<std::size_t> next_buffer_{0};
  std::atomic<std::size_t> next_run_{0};
};

}  // namespace

Result<std::unique_ptr<File>> open_for_blocks(Vfs& vfs, const ReadPlan& plan) {
  DF_TRY_VOID(check(plan));
  return open_part(vfs, plan.name, Access::kDirect, plan.header_bytes + plan.data_bytes);
}

Result<ReadOutcome> read_blocks(Vfs& vfs, const ReadPlan& plan) {
  DF_TRY(const std::unique_ptr<File> file, open_for_blocks(vfs, plan));
  return read_blocks(*file, plan);
}

Result<ReadOutcome> read_blocks(File& file, const ReadPlan& plan) {
  DF_TRY_VOID(check(plan));
  const std::vector<ReadRun> runs = plan_runs(plan.pieces, plan.data_bytes);
  if (runs.empty()) return ReadOutcome{};
  DF_TRY_VOID(file.check_whole());  // once, and not by each thread and for each block
  const std::size_t wanted = std::clamp<std::size_t>(plan.thread_count, 1, kReadThreadsMax);
  DF_TRY(const std::vector<MappedMemory> buffers,
         make_buffers(std::min(wanted, runs.size()), round_up(longest(runs), kPageBytes)));
  DF_TRY(const std::vector<PinnedMemory> pinned, pin_for_devices(plan, buffers));
  return ReadCrew(plan, file, runs, buffers).run();
}

}  // namespace deepfreeze
