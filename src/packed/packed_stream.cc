#include "packed/packed_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "codec/crc32c.h"

namespace deepfreeze {

namespace {

// Of the copy in memory: the blocks themselves have been verified.
std::unexpected<Error> changed() {
  return fail(ErrorCode::kIo, "pack: the memory has changed since the blocks were verified");
}

}  // namespace

void PackedStream::add(std::uint32_t crc, std::uint64_t bytes) {
  crc_ = crc32c_combine(crc_, crc, bytes);
  bytes_ += bytes;
}

Piece PackedStream::lead(std::span<std::byte> memory) {
  const std::vector<std::byte> page = encode_packed_lead(lead_);
  std::ranges::copy(page, memory.begin());
  const Piece piece{.bytes = memory.first(page.size()), .crc = crc32c(page)};
  add(piece.crc, piece.bytes.size());
  return piece;
}

void PackedStream::pass_blocks(std::span<const PackedBlock> blocks, std::uint32_t crc) {
  std::uint64_t bytes = 0;
  for (const PackedBlock& block : blocks) bytes += block.bytes;
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  add(crc, bytes);
}

void PackedStream::begin_chunk(std::span<std::byte> memory) {
  chunk_ = memory;
  std::memcpy(chunk_.data(), rest_.data(), left_over_);
  filled_ = left_over_;
  chunk_crc_ = rest_crc_;
}

void PackedStream::add_block(std::span<const std::byte> stored, std::uint32_t crc) {
  std::memcpy(chunk_.data() + filled_, stored.data(), stored.size());
  filled_ += stored.size();
  chunk_crc_ = crc32c_combine(chunk_crc_, crc, stored.size());
  blocks_.push_back({.bytes = static_cast<std::uint32_t>(stored.size()), .crc = crc});
}

Result<Piece> PackedStream::end_chunk() {
  const std::size_t whole = filled_ / kPageBytes * kPageBytes;
  left_over_ = filled_ - whole;
  std::memcpy(rest_.data(), chunk_.data() + whole, left_over_);
  rest_crc_ = crc32c(std::span(rest_).first(left_over_));
  const auto bytes = std::span<const std::byte>(chunk_).first(whole);
  const Piece piece{.bytes = bytes, .crc = crc32c(bytes)};
  if (crc32c_combine(piece.crc, rest_crc_, left_over_) != chunk_crc_) return changed();
  add(piece.crc, whole);
  return piece;
}

Result<PackedStream::Last> PackedStream::last(std::uint32_t plain_crc) {
  const auto rest = std::span<const std::byte>(rest_).first(left_over_);
  const PackedIndex index{.blocks = std::move(blocks_),
                          .plain_crc = plain_crc,
                          .stored_crc = crc32c_combine(crc_, rest_crc_, rest.size())};
  const std::vector<std::byte> encoded = encode_packed_index(lead_, index);
  Last last;
  DF_TRY(last.memory, MappedMemory::allocate(rest.size() + encoded.size()));
  std::ranges::copy(rest, last.memory.bytes().begin());
  std::ranges::copy(encoded, last.memory.bytes().subspan(rest.size()).begin());
  const auto bytes = last.memory.bytes().first(rest.size() + encoded.size());
  last.piece = {.bytes = bytes, .crc = crc32c_combine(rest_crc_, crc32c(encoded), encoded.size())};
  if (crc32c(bytes) != last.piece.crc) return changed();
  add(last.piece.crc, bytes.size());
  return last;
}

}  // namespace deepfreeze
