// The steps are those of the commit protocol (src/manifest/commit.cc) that concern a rank's files:
//   2. Data: create, reserve space, write the slabs, cut to the exact size, sync.
//   3. Header: write it in front of the data, sync, close.
// Each file goes through them, and no header is written before the data of all files is synced.
// A file without a header is refused by every reader, so a power cut before step 3 leaves
// nothing that could pass for a part. Nothing is tried twice: after a failed sync the kernel may
// hold pages that it calls clean and that never reached the device.
#include "pipeline/part_files.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
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

// Only a section's last slab may end inside a page, and each begins at one.
std::string_view refusal(const Image& image) {
  if (image.slab_count() == 0) return {};
  if (image.slab_bytes() % kPageBytes != 0) return "slabs of odd pages";
  if (image.slots() == 0) return "memory for no slab";
  if (!is_page_aligned(image.slab(0).data())) return "the data begins inside a page";
  if (image.slab_count() > kSlabQueueMax) return "too many slabs";
  return {};
}

std::unexpected<Error> refuse(std::string_view name, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("write {}: {}", name, why));
}

Status check(const FileSpec& file) {
  if (file.header_bytes > 0 && file.header_bytes % kPageBytes == 0 &&
      file.header_bytes <= round_up(kHeaderBytesMax, kPageBytes)) {
    return {};
  }
  return refuse(file.name, fmt::format("a header of {} bytes", file.header_bytes));
}

Status check(const PartSpec& spec) {
  if (spec.files.empty() || spec.files.size() != spec.image.sections().size()) {
    return fail(ErrorCode::kInternal, fmt::format("{} files for {} sections", spec.files.size(),
                                                  spec.image.sections().size()));
  }
  for (const FileSpec& file : spec.files) DF_TRY_VOID(check(file));
  const std::string_view why = refusal(spec.image);
  if (!why.empty()) return refuse(spec.files.front().name, why);
  return {};
}

Result<PartFiles::OpenFile> create_file(Vfs& vfs, const FileSpec& spec, std::uint64_t data_bytes,
                                        Access access) {
  DF_TRY(std::unique_ptr<File> file, vfs.create(spec.name, access));
  DF_TRY_VOID(file->preallocate(round_up(spec.header_bytes + data_bytes, kPageBytes)));
  DF_FAIL_POINT("part.created");
  return PartFiles::OpenFile{.file = std::move(file), .path = vfs.path_of(spec.name)};
}

// finish_data() cuts the zeros off again.
Status write_odd_end(File& file, std::uint64_t offset, std::span<const std::byte> bytes) {
  DF_TRY(const MappedMemory page, MappedMemory::allocate(kPageBytes));
  std::memcpy(page.bytes().data(), bytes.data(), bytes.size());
  return file.write_at(offset, page.bytes());
}

}  // namespace

Result<std::unique_ptr<PartFiles>> PartFiles::create(Vfs& vfs, PartSpec spec, Access access) {
  DF_TRY_VOID(check(spec));
  std::vector<OpenFile> files;
  for (std::size_t i = 0; i < spec.files.size(); ++i) {
    const std::uint64_t data_bytes = spec.image.sections()[i].size();
    DF_TRY(OpenFile file, create_file(vfs, spec.files[i], data_bytes, access));
    access = file.file->access();  // if one file refuses direct access, later ones need not try
    files.push_back(std::move(file));
  }
  return std::make_unique<PartFiles>(std::move(spec), std::move(files));
}

PartFiles::PartFiles(PartSpec spec, std::vector<OpenFile> files)
    : spec_(std::move(spec)),
      files_(std::move(files)),
      access_(files_.front().file->access()),
      pushed_(spec_.image.slab_count()) {}

std::size_t PartFiles::file_of(std::size_t slab_index) const {
  return spec_.image.section_of(slab_index);
}

std::optional<int> PartFiles::native_fd(std::size_t slab_index) const {
  return files_[file_of(slab_index)].file->native_fd();
}

bool PartFiles::admit(std::size_t slab_index) {
  // relaxed: it only tells the first push of a slab from a second one.
  if (slab_index >= slab_count() || pushed_[slab_index].exchange(true, std::memory_order_relaxed)) {
    error_.set(Error(ErrorCode::kInternal,
                     fmt::format("write {}: slab {} is none of {}, or came twice",
                                 spec_.files.front().name, slab_index, slab_count())));
    return false;
  }
  clock_.begin();
  trace::begin("write", slab_index);
  return true;
}

Status PartFiles::may_start() const {
  if (error_.is_set()) return error_.status();
  DF_FAIL_POINT("part.write");
  return {};
}

std::uint64_t PartFiles::offset_of(std::size_t slab_index) const {
  const std::size_t file = file_of(slab_index);
  const std::uint64_t begin = slab_index * spec_.image.slab_bytes();
  return spec_.files[file].header_bytes + begin - spec_.image.sections()[file].begin;
}

// Direct access moves whole pages.
std::span<const std::byte> PartFiles::even_part(std::size_t slab_index) const {
  const std::span<const std::byte> slab = spec_.image.slab(slab_index);
  return slab.first(slab.size() - (access() == Access::kDirect ? slab.size() % kPageBytes : 0));
}

Status PartFiles::write_from(std::size_t slab_index, std::uint64_t done) {
  const std::span<const std::byte> slab = spec_.image.slab(slab_index);
  const std::uint64_t even_bytes = even_part(slab_index).size();
  const std::uint64_t offset = offset_of(slab_index);
  File& file = *files_[file_of(slab_index)].file;
  if (done < even_bytes) {
    DF_TRY_VOID(file.write_at(offset + done, slab.subspan(done, even_bytes - done)));
  }
  if (even_bytes < slab.size()) {
    DF_TRY_VOID(write_odd_end(file, offset + even_bytes, slab.subspan(even_bytes)));
  }
  // Small files may stay in the page cache.
  if (slab.size() == spec_.image.slab_bytes()) return file.flush_range(offset, slab.size());
  return {};
}

Error PartFiles::write_failed(std::size_t slab_index, int os_errno) const {
  return os_fail("write",
                 fmt::format("{} at {}", files_[file_of(slab_index)].path, offset_of(slab_index)),
                 os_errno)
      .error();
}

void PartFiles::settle(std::size_t slab_index, const Status& written) {
  if (written) {
    // relaxed: the first counter is for display; the second is read after the writers were joined.
    bytes_written_.fetch_add(spec_.image.slab(slab_index).size(), std::memory_order_relaxed);
    slabs_written_.fetch_add(1, std::memory_order_relaxed);
  } else {
    error_.set(written.error());
  }
  clock_.end();
  trace::end("write", slab_index);
  if (spec_.on_slab_free) spec_.on_slab_free(slab_index);
}

// Destructors call it too, after an exception for lack of memory: that text is short enough to need
// none.
void PartFiles::cancel() {
  try {
    error_.set(Error(ErrorCode::kCancelled, "write " + spec_.files.front().name + ": given up"));
  } catch (const std::exception&) {
    error_.set(Error(ErrorCode::kCancelled, "given up"));
  }
}

Status PartFiles::finish(const MakeHeader& make_header) {
  DF_TRY_VOID(error_.status());
  const Status finished = finish_all(make_header);
  if (finished) return {};
  error_.set(finished.error());
  return error_.status();  // an earlier error than this one wins
}

Status PartFiles::finish_all(const MakeHeader& make_header) {
  DF_TRY_VOID(check_all_came());
  for (std::size_t i = 0; i < files_.size(); ++i) DF_TRY_VOID(finish_data(i));
  for (std::size_t i = 0; i < files_.size(); ++i) DF_TRY_VOID(finish_header(i, make_header));
  return {};
}

Status PartFiles::check_all_came() const {
  const std::size_t written = slabs_written_.load(std::memory_order_relaxed);
  if (written == slab_count()) return {};
  return fail(ErrorCode::kInternal, fmt::format("write {}: {} of {} slabs came",
                                                spec_.files.front().name, written, slab_count()));
}

// The rest of step 2.
Status PartFiles::finish_data(std::size_t index) {
  File& file = *files_[index].file;
  DF_TRY_VOID(
      file.truncate(spec_.files[index].header_bytes + spec_.image.sections()[index].size()));
  DF_FAIL_POINT("part.data_written");
  const trace::Span span("sync data");
  DF_TRY_VOID(file.sync());
  DF_FAIL_POINT("part.data_synced");
  return {};
}

// Step 3.
Status PartFiles::finish_header(std::size_t index, const MakeHeader& make_header) {
  const FileSpec& spec = spec_.files[index];
  DF_TRY(const std::vector<std::byte> header, make_header(index));
  if (header.size() != spec.header_bytes) {
    return fail(ErrorCode::kInternal, fmt::format("write {}: a header of {} bytes, not {}",
                                                  spec.name, header.size(), spec.header_bytes));
  }
  const trace::Span span("header");
  DF_TRY_VOID(error_.status());  // a cancel while the header was made
  File& file = *files_[index].file;
  DF_TRY_VOID(write_header(file, header));
  DF_FAIL_POINT("part.header_written");
  DF_TRY_VOID(file.sync());
  DF_FAIL_POINT("part.header_synced");
  return file.close();
}

Status PartFiles::write_header(File& file, std::span<const std::byte> header) {
  DF_TRY(const MappedMemory pages, MappedMemory::allocate(header.size()));
  std::memcpy(pages.bytes().data(), header.data(), header.size());
  DF_TRY_VOID(file.write_at(0, pages.bytes()));
  bytes_written_.fetch_add(header.size(), std::memory_order_relaxed);  // for display
  return {};
}

}  // namespace deepfreeze
