#include "tiering/copy_file.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/checked_math.h"
#include "base/clock.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/block_crcs.h"
#include "format/layout.h"
#include "format/shard_header.h"
#include "manifest/record_file.h"
#include "manifest/sealed_parts.h"
#include "packed/open_part.h"
#include "tiering/slab_packer.h"

namespace deepfreeze {
namespace {

// A slab that was read and verified.
struct Slab {
  std::size_t buffer = 0;
  std::uint64_t begin = 0;  // in the data
  std::span<const std::byte> bytes;
  std::uint32_t crc = 0;  // of them, from the header
};

// Bytes to send, and the buffers that are free afterwards.
struct Outgoing {
  Piece piece;
  std::uint64_t plain_bytes = 0;           // that they stand for
  std::optional<std::size_t> buffer = {};  // of buffers_
  std::optional<std::size_t> chunk = {};   // of chunks_
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
  [[nodiscard]] bool may_pack() const;
  [[nodiscard]] Status make_packer(std::uint64_t header_bytes);
  [[nodiscard]] Status begin_packed(Upload& upload);
  [[nodiscard]] Status pack_slabs();
  [[nodiscard]] Status end_packed(Upload& upload);
  [[nodiscard]] Status send(Upload& upload);
  [[nodiscard]] Status send_all(Upload& upload);
  [[nodiscard]] Status put(Upload& upload, const Piece& piece, std::uint64_t plain_bytes);
  [[nodiscard]] Status finish(Upload& upload);
  void close_queues();
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
  // Only if the file is packed.
  std::optional<SlabPacker> packer_;
  std::vector<MappedMemory> chunks_;
  BoundedQueue<std::size_t> empty_chunks_{kCopySlabs};
  BoundedQueue<Outgoing> outgoing_{2 * kCopySlabs};
};

Status FileCopy::may_go_on() const {
  if (!settings_.stop.load(std::memory_order_relaxed)) return {};
  return fail(ErrorCode::kCancelled, fmt::format("copy {}: stopped", path_));
}

Status FileCopy::open() {
  auto opened = open_part(request_.from, path_, Access::kDirect, request_.file.bytes);
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
  if (settings_.packing == nullptr) settings_.rate.take(size);
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
    if (settings_.packing == nullptr) settings_.rate.take(bytes);
    DF_TRY_VOID(may_go_on());
    const std::span<std::byte> memory = buffers_[*buffer].bytes();
    DF_TRY_VOID(read_slab(begin, memory.first(round_up(bytes, kPageBytes))));
    const std::span<const std::byte> slab = memory.first(bytes);
    DF_TRY_VOID(check_blocks(begin, slab));
    // The checksums of the capture: those of the blocks that these bytes are.
    const std::uint32_t crc = crc_of_blocks(header_.block_crcs, {begin, begin + slab.size()});
    const bool is_taken =
        packer_ ? full_.push({*buffer, begin, slab, crc})
                : outgoing_.push({.piece = {slab, crc}, .plain_bytes = bytes, .buffer = *buffer});
    if (!is_taken) return {};
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

// The packing thread's part.
Status FileCopy::pack_slabs() {
  while (const auto slab = full_.pop()) {
    const auto chunk = empty_chunks_.pop();
    if (!chunk) return {};
    const auto memory = chunks_[*chunk].bytes();
    DF_TRY(const Piece piece, packer_->pack(slab->begin, slab->bytes, slab->crc, memory));
    Outgoing outgoing{.piece = piece, .plain_bytes = slab->bytes.size()};
    if (piece.bytes.data() == slab->bytes.data()) {  // as it is
      outgoing.buffer = slab->buffer;
      empty_chunks_.push(*chunk);
    } else {
      outgoing.chunk = *chunk;
      empty_.push(slab->buffer);
    }
    if (!outgoing_.push(outgoing)) return {};
  }
  return {};
}

Status FileCopy::put(Upload& upload, const Piece& piece, std::uint64_t plain_bytes) {
  const auto begun = Monotonic::now();
  if (settings_.packing != nullptr) {
    settings_.rate.take(piece.bytes.size());
    DF_TRY_VOID(may_go_on());
  }
  if (!piece.bytes.empty()) DF_TRY_VOID(upload.append(piece.bytes, piece.crc));
  const std::chrono::duration<double> took = Monotonic::now() - begun;
  if (settings_.packing != nullptr) settings_.packing->note_sent(piece.bytes.size(), took.count());
  if (settings_.on_bytes) settings_.on_bytes(plain_bytes, piece.bytes.size());
  return {};
}

Status FileCopy::send_all(Upload& upload) {
  while (const auto outgoing = outgoing_.pop()) {
    DF_TRY_VOID(put(upload, outgoing->piece, outgoing->plain_bytes));
    if (outgoing->buffer) empty_.push(*outgoing->buffer);
    if (outgoing->chunk) empty_chunks_.push(*outgoing->chunk);
  }
  return {};
}

void FileCopy::close_queues() {
  empty_.close();
  full_.close();
  empty_chunks_.close();
  outgoing_.close();
}

// One slab is read and checked while the one before it is sent; in between, one may be packed.
Status FileCopy::send(Upload& upload) {
  Status read;
  Status packed;
  Status sent;
  {
    const auto reader = start_threads(1, "df-flush-read", [&] {
      read = read_slabs();
      (packer_ ? full_.close() : outgoing_.close());
    });
    const auto packer = start_threads(packer_ ? 1 : 0, "df-flush-pack", [&] {
      packed = pack_slabs();
      outgoing_.close();
    });
    const bool has_threads = !reader.empty() && (!packer_ || !packer.empty());
    sent = has_threads ? send_all(upload)
                       : fail(ErrorCode::kNoSpace, "copy " + path_ + ": no thread to read it");
    close_queues();
  }  // joined
  DF_TRY_VOID(sent);
  DF_TRY_VOID(packed);
  return read;
}

bool FileCopy::may_pack() const {
  return settings_.packing != nullptr && header_.data_bytes >= kPackedDataMin &&
         !settings_.packing->is_idle(request_.file.bytes);
}

// A machine that can't pack sends plain files.
Status FileCopy::make_packer(std::uint64_t header_bytes) {
  auto packer = SlabPacker::make(header_, header_bytes, *settings_.packing);
  if (packer) {
    packer_.emplace(*std::move(packer));
    return {};
  }
  if (packer.error().code() != ErrorCode::kUnsupported) return std::unexpected(packer.error());
  settings_.packing->give_up(packer.error());
  return {};
}

Status FileCopy::begin_packed(Upload& upload) {
  while (chunks_.size() < buffers_.size()) {
    DF_TRY(MappedMemory chunk, MappedMemory::allocate(kPackedChunkBytes));
    chunks_.push_back(std::move(chunk));
    empty_chunks_.push(chunks_.size() - 1);
  }
  DF_TRY(const MappedMemory page, MappedMemory::allocate(kPackedLeadBytes));
  return put(upload, packer_->lead(page.bytes(), header_pages_crc_), 0);
}

Status FileCopy::end_packed(Upload& upload) {
  DF_TRY(const PackedStream::Last last, packer_->last());
  DF_TRY_VOID(put(upload, last.piece, 0));
  upload.end_here();
  return {};
}

Status FileCopy::finish(Upload& upload) {
  const auto begun = Monotonic::now();
  DF_TRY_VOID(upload.finish());
  const std::chrono::duration<double> took = Monotonic::now() - begun;
  if (settings_.packing != nullptr) settings_.packing->note_sent(0, took.count());
  return {};
}

Status FileCopy::run() {
  DF_TRY_VOID(open());
  DF_TRY_VOID(read_header());
  DF_TRY_VOID(make_buffers());
  const std::uint64_t header_bytes = header_pages_.bytes().size();
  if (may_pack()) DF_TRY_VOID(make_packer(header_bytes));
  const std::uint64_t bytes =
      packer_ ? packed_bytes_max({header_bytes, header_.data_bytes}) : request_.file.bytes;
  const std::string& to = request_.to_name.empty() ? path_ : request_.to_name;
  DF_TRY(const auto upload, request_.to.begin(to, bytes, request_.if_taken));
  if (packer_) DF_TRY_VOID(begin_packed(*upload));
  DF_TRY_VOID(put(*upload, {header_pages_.bytes(), header_pages_crc_}, header_bytes));
  DF_TRY_VOID(send(*upload));
  if (packer_) DF_TRY_VOID(end_packed(*upload));
  return finish(*upload);
}

}  // namespace

std::string path_in_run(const Manifest& manifest, std::string_view file_name) {
  return join_name(attempt_dir_name({manifest.point.step, manifest.point.attempt_id}), file_name);
}

Status copy_sealed_file(const CopyRequest& request, const CopySettings& settings) {
  return FileCopy(request, settings).run();
}

bool has_sealed_file(Vfs& vfs, const Manifest& manifest, const ManifestFile& file) {
  const std::string path = path_in_run(manifest, file.name);
  const auto found = read_part_header(vfs, path);
  if (!found || found->file_bytes != file.bytes || found->crc != file.header_crc) return false;
  const auto opened = open_part(vfs, path, Access::kBuffered, file.bytes);
  return opened && (*opened)->check_whole();
}

}  // namespace deepfreeze
