// The steps are those of the commit protocol (src/manifest/commit.cc) that concern one file:
//   2. Data: create, reserve space, write the slabs, cut to the exact size, sync.
//   3. Header: write it in front of the data, sync, close.
// A file without a header is refused by every reader, so a power cut before step 3 leaves
// nothing that could pass for a part. Nothing is tried twice: after a failed sync the kernel may
// hold pages that it calls clean and that never reached the device.
#include "pipeline/part_file.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/fail_point.h"
#include "base/mapped_memory.h"
#include "base/trace.h"
#include "base/try.h"
#include "format/layout.h"
#include "storage/os_error.h"

namespace deepfreeze {
namespace {

bool is_page_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kPageBytes == 0;
}

// Only the last slab may end inside a page, and each begins at one.
std::string_view refusal(const Image& image) {
  if (image.slab_count() == 0) return {};
  if (image.slab_bytes() % kPageBytes != 0) return "slabs of odd pages";
  if (image.slots() == 0) return "memory for no slab";
  if (!is_page_aligned(image.slab(0).data())) return "the data begins inside a page";
  if (image.slab_count() > kSlabQueueMax) return "too many slabs";
  return {};
}

Status check(const PartPlan& plan) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("write {}: {}", plan.name, why));
  };
  if (plan.header_bytes == 0 || plan.header_bytes % kPageBytes != 0 ||
      plan.header_bytes > round_up(kHeaderBytesMax, kPageBytes)) {
    return refuse(fmt::format("a header of {} bytes", plan.header_bytes));
  }
  const std::string_view why = refusal(plan.image);
  if (!why.empty()) return refuse(why);
  return {};
}

}  // namespace

Result<std::unique_ptr<PartFile>> PartFile::create(Vfs& vfs, PartPlan plan, Access access) {
  DF_TRY_VOID(check(plan));
  DF_TRY(std::unique_ptr<File> file, vfs.create(plan.name, access));
  const std::uint64_t bytes = plan.header_bytes + plan.image.data_bytes();
  DF_TRY_VOID(file->preallocate(round_up(bytes, kPageBytes)));
  DF_FAIL_POINT("part.created");
  std::string path = vfs.path_of(plan.name);
  return std::make_unique<PartFile>(std::move(plan), std::move(file), std::move(path));
}

PartFile::PartFile(PartPlan plan, std::unique_ptr<File> file, std::string path)
    : plan_(std::move(plan)),
      file_(std::move(file)),
      path_(std::move(path)),
      pushed_(plan_.image.slab_count()) {}

bool PartFile::admit(std::size_t slab_index) {
  // relaxed: it only tells the first push of a slab from a second one.
  if (slab_index >= slab_count() || pushed_[slab_index].exchange(true, std::memory_order_relaxed)) {
    error_.set(Error(ErrorCode::kInternal, fmt::format("write {}: slab {} is none of {}, or came "
                                                       "twice",
                                                       plan_.name, slab_index, slab_count())));
    return false;
  }
  clock_.begin();
  trace::begin("write", slab_index);
  return true;
}

Status PartFile::may_start() const {
  if (error_.is_set()) return error_.status();
  DF_FAIL_POINT("part.write");
  return {};
}

std::uint64_t PartFile::offset_of(std::size_t slab_index) const {
  return plan_.header_bytes + slab_index * plan_.image.slab_bytes();
}

// Direct access moves whole pages.
std::span<const std::byte> PartFile::even_part(std::size_t slab_index) const {
  const std::span<const std::byte> slab = plan_.image.slab(slab_index);
  return slab.first(slab.size() - (access() == Access::kDirect ? slab.size() % kPageBytes : 0));
}

Status PartFile::write_from(std::size_t slab_index, std::uint64_t done) {
  const std::span<const std::byte> slab = plan_.image.slab(slab_index);
  const std::uint64_t even_bytes = even_part(slab_index).size();
  const std::uint64_t offset = offset_of(slab_index);
  if (done < even_bytes) {
    DF_TRY_VOID(file_->write_at(offset + done, slab.subspan(done, even_bytes - done)));
  }
  if (even_bytes < slab.size()) {
    DF_TRY_VOID(write_odd_end(offset + even_bytes, slab.subspan(even_bytes)));
  }
  // Small files may stay in the page cache.
  if (slab.size() == plan_.image.slab_bytes()) return file_->flush_range(offset, slab.size());
  return {};
}

// finish_data() cuts the zeros off again.
Status PartFile::write_odd_end(std::uint64_t offset, std::span<const std::byte> bytes) {
  DF_TRY(const MappedMemory page, MappedMemory::allocate(kPageBytes));
  std::memcpy(page.bytes().data(), bytes.data(), bytes.size());
  return file_->write_at(offset, page.bytes());
}

Error PartFile::write_failed(std::size_t slab_index, int os_errno) const {
  return os_fail("write", fmt::format("{} at {}", path_, offset_of(slab_index)), os_errno).error();
}

void PartFile::settle(std::size_t slab_index, const Status& written) {
  if (written) {
    // relaxed: the first is for display, the second is read by who has joined the writers.
    bytes_written_.fetch_add(plan_.image.slab(slab_index).size(), std::memory_order_relaxed);
    slabs_written_.fetch_add(1, std::memory_order_relaxed);
  } else {
    error_.set(written.error());
  }
  clock_.end();
  trace::end("write", slab_index);
  if (plan_.on_released) plan_.on_released(slab_index);
}

void PartFile::cancel() {
  error_.set(Error(ErrorCode::kCancelled, "write " + plan_.name + ": given up"));
}

Status PartFile::finish(const MakeHeader& make_header) {
  if (const Status data = finish_data(); !data) error_.set(data.error());
  if (error_.is_set()) return error_.status();
  const Status header = finish_header(make_header);
  if (!header) error_.set(header.error());
  return header;
}

// The rest of step 2.
Status PartFile::finish_data() {
  DF_TRY_VOID(error_.status());
  const std::size_t written = slabs_written_.load(std::memory_order_relaxed);
  if (written != slab_count()) {
    return fail(ErrorCode::kInternal,
                fmt::format("write {}: {} of {} slabs came", plan_.name, written, slab_count()));
  }
  DF_TRY_VOID(file_->truncate(plan_.header_bytes + plan_.image.data_bytes()));
  DF_FAIL_POINT("part.data_written");
  const trace::Span span("sync data");
  DF_TRY_VOID(file_->sync());
  DF_FAIL_POINT("part.data_synced");
  return {};
}

// Step 3.
Status PartFile::finish_header(const MakeHeader& make_header) {
  DF_TRY(const std::vector<std::byte> header, make_header());
  if (header.size() != plan_.header_bytes) {
    return fail(ErrorCode::kInternal, fmt::format("write {}: a header of {} bytes, not {}",
                                                  plan_.name, header.size(), plan_.header_bytes));
  }
  const trace::Span span("header");
  DF_TRY_VOID(error_.status());  // a cancel while the header was made
  DF_TRY_VOID(write_header(header));
  DF_FAIL_POINT("part.header_written");
  DF_TRY_VOID(file_->sync());
  DF_FAIL_POINT("part.header_synced");
  return file_->close();
}

Status PartFile::write_header(std::span<const std::byte> header) {
  DF_TRY(const MappedMemory pages, MappedMemory::allocate(header.size()));
  std::memcpy(pages.bytes().data(), header.data(), header.size());
  DF_TRY_VOID(file_->write_at(0, pages.bytes()));
  bytes_written_.fetch_add(header.size(), std::memory_order_relaxed);  // for display
  return {};
}

}  // namespace deepfreeze
