#include "tiering/copy_file.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/checked_math.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/block_crcs.h"
#include "format/layout.h"
#include "format/shard_header.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

// A slab on its way: the bytes of the file from `offset` on, or the error that ended the reading.
struct Slab {
  std::size_t buffer = 0;
  std::span<const std::byte> bytes;
  std::uint32_t crc = 0;  // of them, from the header
};

class FileCopy {
 public:
  FileCopy(const CopyRequest& request, const CopySettings& settings)
      : request_(request),
        settings_(settings),
        path_(path_in_run(request.manifest, request.file.name)) {}

  [[nodiscard]] Status run();

 private:
  [[nodiscard]] Status open();
  [[nodiscard]] Status read_header();
  [[nodiscard]] Status check_header(const ShardHeader& header, std::uint32_t crc) const;
  [[nodiscard]] Status make_buffers();
  [[nodiscard]] Status read_slabs();
  [[nodiscard]] Status read_slab(std::uint64_t begin, std::span<std::byte> buffer);
  [[nodiscard]] Status check_blocks(std::uint64_t begin, std::span<const std::byte> slab) const;
  [[nodiscard]] Status send(Upload& upload);
  [[nodiscard]] Status send_slabs(Upload& upload);
  [[nodiscard]] Status may_go_on() const;
  [[nodiscard]] std::unexpected<Error> corrupt(std::string why) const {
    return fail(ErrorCode::kCorrupt, fmt::format("copy {}: {}", request_.from.path_of(path_), why));
  }

  const CopyRequest& request_;
  const CopySettings& settings_;
  const std::string path_;
  std::unique_ptr<File> file_;
  MappedMemory header_pages_;
  std::uint32_t header_pages_crc_ = 0;  // taken before they were verified
  ShardHeader header_;
  std::vector<MappedMemory> buffers_;
  BoundedQueue<std::size_t> empty_{kCopySlabs};
  BoundedQueue<Slab> full_{kCopySlabs};
};

Status FileCopy::may_go_on() const {
  if (!settings_.stop.load(std::memory_order_relaxed)) return {};
  return fail(ErrorCode::kCancelled, fmt::format("copy {}: stopped", path_));
}

Status FileCopy::open() {
  auto opened = request_.from.open_read(path_, Access::kDirect);
  // If all of the attempt is gone, the flush finds that out.
  if (!opened && opened.error().code() == ErrorCode::kNotFound) return corrupt("it is missing");
  if (!opened) return std::unexpected(opened.error());
  file_ = *std::move(opened);
  DF_TRY(const std::uint64_t bytes, file_->size());
  if (bytes == request_.file.bytes) return {};
  return corrupt(fmt::format("it has {} bytes, the manifest says {}", bytes, request_.file.bytes));
}

// Its first page tells its size.
Status FileCopy::read_header() {
  DF_TRY(const MappedMemory first, MappedMemory::allocate(kPageBytes));
  DF_TRY(std::size_t count, file_->read_at(0, first.bytes()));
  DF_TRY(const std::uint64_t size,
         header_size(first.bytes().first(std::min<std::size_t>(count, 8)), request_.file.bytes));
  DF_TRY(header_pages_, MappedMemory::allocate(size));  // at most kHeaderBytesMax
  settings_.rate.take(size);
  DF_TRY_VOID(may_go_on());
  DF_TRY(count, file_->read_at(0, header_pages_.bytes()));
  if (count != size) return corrupt("it ends inside its header");
  header_pages_crc_ = crc32c(header_pages_.bytes());
  std::uint32_t crc = 0;
  DF_TRY(header_, decode_header(header_pages_.bytes(), request_.file.bytes, crc));
  return check_header(header_, crc);
}

Status FileCopy::check_header(const ShardHeader& header, std::uint32_t crc) const {
  if (crc != request_.file.header_crc) return corrupt("its header is not the manifest's");
  const Identity& identity = header.identity;
  const Origin origin = origin_of(request_.manifest, request_.file);
  if (identity.run_id == origin.run_id && identity.attempt_id == origin.point.attempt_id &&
      identity.step == origin.point.step) {
    return {};
  }
  return corrupt("its header is of another attempt");
}

Status FileCopy::make_buffers() {
  const std::uint64_t slabs = ceil_div(header_.data_bytes, kSlabBytes);
  const std::uint64_t bytes = std::min(round_up(header_.data_bytes, kPageBytes), kSlabBytes);
  while (buffers_.size() < std::min<std::uint64_t>(slabs, kCopySlabs)) {
    DF_TRY(MappedMemory buffer, MappedMemory::allocate(bytes));
    buffers_.push_back(std::move(buffer));
    empty_.push(buffers_.size() - 1);
  }
  return {};
}

// The reading thread's part. It ends early if the sender has closed `empty_`.
Status FileCopy::read_slabs() {
  for (std::uint64_t begin = 0; begin < header_.data_bytes; begin += kSlabBytes) {
    const auto buffer = empty_.pop();
    if (!buffer) return {};
    const std::uint64_t bytes = std::min(kSlabBytes, header_.data_bytes - begin);
    settings_.rate.take(bytes);
    DF_TRY_VOID(may_go_on());
    const std::span<std::byte> memory = buffers_[*buffer].bytes();
    DF_TRY_VOID(read_slab(begin, memory.first(round_up(bytes, kPageBytes))));
    const std::span<const std::byte> slab = memory.first(bytes);
    DF_TRY_VOID(check_blocks(begin, slab));
    // The checksums of the capture: those of the blocks that these bytes are.
    const std::uint32_t crc = crc_of_blocks(header_.block_crcs, {begin, begin + slab.size()});
    if (!full_.push({*buffer, slab, crc})) return {};
  }
  return {};
}

// Whole pages, as direct access requires.
Status FileCopy::read_slab(std::uint64_t begin, std::span<std::byte> buffer) {
  DF_TRY(const std::size_t count, file_->read_at(header_pages_.bytes().size() + begin, buffer));
  const std::uint64_t wanted = std::min<std::uint64_t>(buffer.size(), header_.data_bytes - begin);
  if (count >= wanted) return {};
  return corrupt(fmt::format("its data ends after {} bytes", begin + count));
}

Status FileCopy::check_blocks(std::uint64_t begin, std::span<const std::byte> slab) const {
  for (std::uint64_t at = 0; at < slab.size(); at += kBlockBytes) {
    const std::uint64_t block = (begin + at) / kBlockBytes;
    const auto bytes = slab.subspan(at, std::min<std::uint64_t>(kBlockBytes, slab.size() - at));
    const std::uint32_t found = crc32c(bytes);
    if (found == header_.block_crcs[block]) continue;
    return corrupt(fmt::format("block {} does not verify: its checksum is {:08x}, not {:08x}",
                               block, found, header_.block_crcs[block]));
  }
  return {};
}

Status FileCopy::send_slabs(Upload& upload) {
  while (const auto slab = full_.pop()) {
    DF_TRY_VOID(upload.append(slab->bytes, slab->crc));
    if (settings_.on_bytes) settings_.on_bytes(slab->bytes.size());
    empty_.push(slab->buffer);
  }
  return {};
}

// One slab is read and checked while the one before it is sent.
Status FileCopy::send(Upload& upload) {
  Status read;
  Status sent;
  {
    const auto reader = start_threads(1, "df-flush-read", [&] {
      read = read_slabs();
      full_.close();
    });
    sent = reader.empty() ? fail(ErrorCode::kNoSpace, "copy " + path_ + ": no thread to read it")
                          : send_slabs(upload);
    empty_.close();
    full_.close();
  }  // joined
  DF_TRY_VOID(sent);
  return read;
}

Status FileCopy::run() {
  DF_TRY_VOID(open());
  DF_TRY_VOID(read_header());
  DF_TRY_VOID(make_buffers());
  const std::string to =
      request_.directory.empty() ? path_ : join_name(request_.directory, request_.file.name);
  DF_TRY(const auto upload, request_.to.begin(to, request_.file.bytes, request_.if_taken));
  DF_TRY_VOID(upload->append(header_pages_.bytes(), header_pages_crc_));
  if (settings_.on_bytes) settings_.on_bytes(header_pages_.bytes().size());
  DF_TRY_VOID(send(*upload));
  return upload->finish();
}

}  // namespace

std::string path_in_run(const Manifest& manifest, std::string_view file_name) {
  return join_name(attempt_dir_name({manifest.point.step, manifest.point.attempt_id}), file_name);
}

Status copy_sealed_file(const CopyRequest& request, const CopySettings& settings) {
  return FileCopy(request, settings).run();
}

bool has_sealed_file(Vfs& vfs, const Manifest& manifest, const ManifestFile& file) {
  const auto found = read_part_header(vfs, path_in_run(manifest, file.name));
  return found && found->file_bytes == file.bytes && found->crc == file.header_crc;
}

}  // namespace deepfreeze
