#include "protect/parity_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/fail_point.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/layout.h"
#include "protect/write_parity.h"
#include "storage/os_error.h"

namespace deepfreeze {
Result<std::unique_ptr<ParityGroup>> ParityGroup::open(Vfs& pieces, const std::string& directory,
                                                       const ParityRecord& record,
                                                       ParityFiles parity,
                                                       const std::optional<Error>& unread) {
  DF_TRY(ErasureCode code, ErasureCode::make(record.members.size() - record.parity, record.parity));
  return std::make_unique<ParityGroup>(pieces, directory, record, std::move(code),
                                       std::move(parity), unread);
}

ParityGroup::ParityGroup(Vfs& pieces, const std::string& directory, const ParityRecord& record,
                         ErasureCode code, ParityFiles parity, const std::optional<Error>& unread)
    : layout_(record.members.size(), record.parity),
      chunk_bytes_(record.chunk_bytes),
      code_(std::move(code)),
      parity_(std::move(parity)),
      unread_(unread) {
  for (const Member& member : record.members) {
    streams_.push_back(std::make_unique<MemberStream>(pieces, directory, member));
  }
}

Status ParityGroup::calculate(std::size_t member, std::uint64_t offset,
                              std::span<std::byte> into) const {
  while (!into.empty()) {
    const std::uint64_t chunk = offset / chunk_bytes_;
    const std::uint64_t within = offset % chunk_bytes_;
    const auto part =
        into.first(std::min<std::uint64_t>({into.size(), chunk_bytes_ - within, kStripBytes}));
    DF_TRY_VOID(calculate_piece(member, chunk, within, part));
    into = into.subspan(part.size());
    offset += part.size();
  }
  return {};
}

// Takes the first pieces that can be read, data before parity.
Status ParityGroup::calculate_piece(std::size_t member, std::size_t chunk, std::uint64_t offset,
                                    std::span<std::byte> into) const {
  const std::size_t stripe = layout_.stripe_of_chunk(member, chunk);
  DF_TRY(const MappedMemory memory, MappedMemory::allocate(layout_.data() * into.size()));
  std::vector<std::size_t> given;
  std::vector<const std::byte*> bytes;
  std::string lost;
  std::optional<Error> open = unread_;
  for (std::size_t piece = 0; piece < layout_.members() && given.size() < layout_.data(); ++piece) {
    if (piece == chunk) continue;
    const auto place = memory.bytes().subspan(given.size() * into.size(), into.size());
    const Status read = read_piece(stripe, piece, offset, place);
    if (!read) {
      lost += fmt::format("{}{}", lost.empty() ? "" : "; ", read.error().message());
      if (may_have_good_copy(read.error())) open = read.error();
      continue;
    }
    given.push_back(piece);
    bytes.push_back(place.data());
  }
  if (given.size() < layout_.data()) {
    const Error few(ErrorCode::kIncomplete,
                    fmt::format("{} of {} pieces are left, {} are needed: {}", given.size(),
                                layout_.members() - 1, layout_.data(), lost));
    return std::unexpected(open ? Error(open->code(), few.message(), open->os_errno()) : few);
  }
  DF_FAIL_POINT("parity.pieces_read");
  DF_TRY(const PieceMaker maker, code_.make_piece(given, chunk));
  maker.make(bytes, into);
  return {};
}

Status ParityGroup::read_piece(std::size_t stripe, std::size_t piece, std::uint64_t offset,
                               std::span<std::byte> into) const {
  if (piece < layout_.data()) {
    const std::size_t member = layout_.data_member(stripe, piece);
    return streams_[member]->read(piece * chunk_bytes_ + offset, into);
  }
  const std::size_t row = piece - layout_.data();
  const std::size_t member = layout_.parity_member(stripe, row);
  const auto found = parity_.find(member);
  if (found == parity_.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the parity of node {} is missing", streams_[member]->member().node));
  }
  return found->second.read_data(row * chunk_bytes_ + offset, into);
}

}  // namespace deepfreeze
