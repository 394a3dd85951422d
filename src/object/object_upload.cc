// Bytes are copied into a part, and checksummed on the way. A part that is full goes to one of the
// threads that send; the next one is filled meanwhile. The checksum of the file is made from those
// of its parts, so that the store can compare all of it with the bytes that were read here.
#include "object/object_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/checked_math.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "codec/crc32c_copy.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kPartSizeUnit = 1U << 20U;

// Memory of one part, filled from its front.
class PartBuffer {
 public:
  [[nodiscard]] static Result<PartBuffer> allocate(std::uint64_t bytes) {
    PartBuffer part;
    part.capacity_ = bytes;
    DF_TRY(part.memory_, MappedMemory::allocate(std::max<std::uint64_t>(bytes, 1)));
    return part;
  }
  // As much of `bytes` as there is room for; returns the rest. `crc_of_all` goes on with their
  // checksum.
  std::span<const std::byte> fill(std::span<const std::byte> bytes, std::uint32_t& crc_of_all) {
    const auto room = memory_.bytes().subspan(filled_, capacity_ - filled_);
    const auto taken = bytes.first(std::min(bytes.size(), room.size()));
    const std::uint32_t crc = copy_with_crc32c(taken, room.first(taken.size()));
    crc_ = crc32c_combine(crc_, crc, taken.size());
    crc_of_all = crc32c_combine(crc_of_all, crc, taken.size());
    filled_ += taken.size();
    return bytes.subspan(taken.size());
  }
  void clear() {
    filled_ = 0;
    crc_ = 0;
  }
  [[nodiscard]] bool is_full() const { return filled_ == capacity_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return memory_.bytes().first(filled_); }
  [[nodiscard]] std::uint32_t crc() const { return crc_; }

 private:
  MappedMemory memory_;
  std::size_t capacity_ = 0;
  std::size_t filled_ = 0;
  std::uint32_t crc_ = 0;
};

IfPresent if_present(IfTaken if_taken) {
  return if_taken == IfTaken::kRefuse ? IfPresent::kRefuse : IfPresent::kReplace;
}

// The checks of both kinds of upload.
class ObjectUpload : public Upload {
 public:
  explicit ObjectUpload(ObjectTarget target) : target_(std::move(target)) {}

  Status append(std::span<const std::byte> bytes, std::optional<std::uint32_t> crc32c) final {
    if (bytes.size() > target_.bytes - appended_) {
      return fail(ErrorCode::kInternal, fmt::format("put {}: {} bytes after {} of {}", target_.key,
                                                    bytes.size(), appended_, target_.bytes));
    }
    DF_FAIL_POINT("tier.append");
    DF_TRY(const std::uint32_t copied, take(bytes));
    if (crc32c && copied != *crc32c) {  // finish() will lack them
      return fail(ErrorCode::kCorrupt,
                  fmt::format("put {}: bytes from {} on have changed in memory: their checksum is "
                              "{:08x}, not {:08x}",
                              target_.key, appended_, copied, *crc32c));
    }
    appended_ += bytes.size();
    return {};
  }
  void end_here() final { target_.bytes = appended_; }
  Status finish() final {
    if (appended_ != target_.bytes) {
      return fail(ErrorCode::kInternal, fmt::format("put {}: {} bytes came, of {}", target_.key,
                                                    appended_, target_.bytes));
    }
    DF_TRY_VOID(send_rest());
    DF_FAIL_POINT("tier.renamed");
    return {};
  }

 protected:
  // Copies them; the checksum of the copy.
  [[nodiscard]] virtual Result<std::uint32_t> take(std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Status send_rest() = 0;
  [[nodiscard]] const ObjectTarget& target() const { return target_; }

 private:
  ObjectTarget target_;
  std::uint64_t appended_ = 0;
};

class WholeUpload final : public ObjectUpload {
 public:
  WholeUpload(ObjectTarget target, PartBuffer all)
      : ObjectUpload(std::move(target)), all_(std::move(all)) {}

 private:
  Result<std::uint32_t> take(std::span<const std::byte> bytes) override {
    std::uint32_t crc = 0;
    all_.fill(bytes, crc);
    return crc;
  }
  Status send_rest() override {
    DF_FAIL_POINT("tier.written");
    return target().client.put(target().key, all_.bytes(), all_.crc(),
                               if_present(target().if_taken));
  }

  PartBuffer all_;
};

class PartsUpload final : public ObjectUpload {
 public:
  PartsUpload(ObjectTarget target, std::string upload_id, std::uint64_t part_bytes)
      : ObjectUpload(std::move(target)),
        upload_id_(std::move(upload_id)),
        part_bytes_(part_bytes),
        parts_(ceil_div(this->target().bytes, part_bytes)) {}
  ~PartsUpload() override;

 private:
  struct FullPart {
    std::size_t number = 0;  // from 1
    PartBuffer buffer;
  };

  Result<std::uint32_t> take(std::span<const std::byte> bytes) override;
  Status send_rest() override;
  [[nodiscard]] Result<PartBuffer> empty_buffer();
  [[nodiscard]] Status hand_over();
  void start();
  void send_parts();  // of each thread
  void send(FullPart& part);
  void join();
  [[nodiscard]] Status first_error();

  const std::string upload_id_;
  const std::uint64_t part_bytes_;
  bool is_open_ = true;  // at the store
  std::optional<PartBuffer> filling_;
  std::size_t buffers_ = 0;   // that were allocated
  std::size_t numbered_ = 0;  // parts that were handed over
  std::uint32_t crc_ = 0;     // of these

  BoundedQueue<FullPart> full_{kPartsInFlight};
  BoundedQueue<PartBuffer> empty_{kPartsInFlight + 1};
  std::vector<std::jthread> threads_;
  std::mutex mutex_;
  std::vector<UploadedPart> parts_;  // guarded by mutex_
  Status error_;                     // the first one; guarded by mutex_
};

PartsUpload::~PartsUpload() {
  {
    const std::lock_guard lock(mutex_);
    // Parts that wait are not sent any more.
    if (error_) error_ = fail(ErrorCode::kCancelled, "put " + target().key + ": given up");
  }
  join();
  if (!is_open_) return;
  const Status aborted = target().client.abort(target().key, upload_id_);
  if (!aborted) {
    log_warning(
        fmt::format("an unfinished upload stays in the store until the tier is opened "
                    "again, a day from now or later: {}",
                    aborted.error().message()));
  }
}

Status PartsUpload::first_error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

// One that is sent already, or a new one.
Result<PartBuffer> PartsUpload::empty_buffer() {
  if (buffers_ <= kPartsInFlight) {
    ++buffers_;
    return PartBuffer::allocate(part_bytes_);
  }
  auto buffer = empty_.pop();
  if (!buffer) return fail(ErrorCode::kInternal, "put " + target().key + ": after its end");
  buffer->clear();
  return *std::move(buffer);
}

Result<std::uint32_t> PartsUpload::take(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0;
  while (!bytes.empty()) {
    DF_TRY_VOID(first_error());
    if (!filling_) {
      DF_TRY(filling_, empty_buffer());
    }
    bytes = filling_->fill(bytes, crc);
    if (filling_->is_full()) DF_TRY_VOID(hand_over());
  }
  return crc;
}

Status PartsUpload::hand_over() {
  if (numbered_ == 0) start();
  FullPart part{.number = ++numbered_, .buffer = *std::move(filling_)};
  filling_.reset();
  crc_ = crc32c_combine(crc_, part.buffer.crc(), part.buffer.bytes().size());
  if (threads_.empty()) {  // the system gives none
    send(part);
    empty_.push(std::move(part.buffer));
  } else {
    full_.push(std::move(part));
  }
  return first_error();
}

void PartsUpload::start() {
  const std::size_t wanted = std::min(kPartsInFlight, parts_.size());
  threads_ = start_threads(wanted, "df-upload-part", [this] { send_parts(); });
}

void PartsUpload::send_parts() {
  while (auto part = full_.pop()) {
    try {
      if (first_error()) send(*part);
    } catch (const std::exception& cause) {  // memory
      const std::lock_guard lock(mutex_);
      if (error_) error_ = fail(ErrorCode::kNoSpace, "put " + target().key + ": " + cause.what());
    }
    empty_.push(std::move(part->buffer));
  }
}

void PartsUpload::send(FullPart& part) {
  auto sent = target().client.put_part(target().key, upload_id_, static_cast<int>(part.number),
                                       part.buffer.bytes(), part.buffer.crc());
  const std::lock_guard lock(mutex_);
  if (sent) {
    parts_[part.number - 1] = *std::move(sent);
  } else if (error_) {
    error_ = std::unexpected(std::move(sent).error());
  }
}

void PartsUpload::join() {
  full_.close();
  threads_.clear();
}

Status PartsUpload::send_rest() {
  if (filling_) DF_TRY_VOID(hand_over());
  join();
  DF_TRY_VOID(first_error());
  parts_.resize(numbered_);  // fewer than were foreseen, if the file ended early
  DF_FAIL_POINT("tier.written");
  DF_TRY_VOID(target().client.complete(target().key, upload_id_, parts_,
                                       {.bytes = target().bytes, .crc32c = crc_},
                                       if_present(target().if_taken)));
  is_open_ = false;
  return {};
}

}  // namespace

std::uint64_t part_bytes_for(std::uint64_t file_bytes, std::uint64_t part_bytes) {
  if (ceil_div(file_bytes, part_bytes) <= kPartsMax) return part_bytes;
  return round_up(ceil_div(file_bytes, kPartsMax), kPartSizeUnit);
}

Result<std::unique_ptr<Upload>> begin_object_upload(ObjectTarget target) {
  if (target.bytes <= target.part_bytes) {
    DF_TRY(PartBuffer all, PartBuffer::allocate(target.bytes));
    return std::make_unique<WholeUpload>(std::move(target), std::move(all));
  }
  const std::uint64_t part_bytes = part_bytes_for(target.bytes, target.part_bytes);
  DF_TRY(std::string upload_id, target.client.begin_upload(target.key));
  auto upload = std::make_unique<PartsUpload>(std::move(target), std::move(upload_id), part_bytes);
  DF_FAIL_POINT("tier.created");
  return upload;
}

}  // namespace deepfreeze
