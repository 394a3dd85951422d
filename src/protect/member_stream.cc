#include "protect/member_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/try.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

std::uint64_t header_span(const MemberFile& file) {
  return round_up(file.header_bytes, kBlockBytes);
}
std::uint64_t whole_span(const MemberFile& file) {
  return header_span(file) + round_up(file.bytes - file.header_bytes, kBlockBytes);
}

void copy_header(std::span<const std::byte> header, std::uint64_t offset,
                 std::span<std::byte> into) {
  const auto from = header.subspan(std::min<std::uint64_t>(offset, header.size()));
  const std::size_t count = std::min(from.size(), into.size());
  std::memcpy(into.data(), from.data(), count);
  std::ranges::fill(into.subspan(count), std::byte{});
}

}  // namespace

MemberStream::MemberStream(Vfs& vfs, const std::string& directory, Member member)
    : member_(std::move(member)) {
  for (const MemberFile& file : member_.files) {
    auto opened = CheckedFile::open(vfs, directory + "/" + file.name,
                                    {.bytes = file.bytes, .header_crc = file.header_crc});
    if (opened && opened->header_bytes().size() != file.header_bytes) {
      opened = fail(ErrorCode::kCorrupt,
                    fmt::format("{}: its header has {} bytes, a parity record says {}", file.name,
                                opened->header_bytes().size(), file.header_bytes));
    }
    files_.push_back(std::move(opened));
  }
}

Status MemberStream::read(std::uint64_t offset, std::span<std::byte> into) const {
  for (std::size_t i = 0; i < files_.size() && !into.empty(); ++i) {
    const std::uint64_t span = whole_span(member_.files[i]);
    if (offset >= span) {
      offset -= span;
      continue;
    }
    const auto part = into.first(std::min<std::uint64_t>(into.size(), span - offset));
    DF_TRY_VOID(read_file(i, offset, part));
    into = into.subspan(part.size());
    offset = 0;
  }
  std::ranges::fill(into, std::byte{});
  return {};
}

Status MemberStream::read_file(std::size_t index, std::uint64_t offset,
                               std::span<std::byte> into) const {
  const Result<CheckedFile>& file = files_[index];
  if (!file) return std::unexpected(file.error());
  const std::uint64_t header = header_span(member_.files[index]);
  if (offset < header) {
    const auto part = into.first(std::min<std::uint64_t>(into.size(), header - offset));
    copy_header(file->header_bytes(), offset, part);
    into = into.subspan(part.size());
    offset = header;
  }
  return into.empty() ? Status{} : file->read_data(offset - header, into);
}

Result<MemberFile> describe_file(Vfs& vfs, const std::string& directory, const ManifestFile& file) {
  DF_TRY(const CheckedFile opened,
         CheckedFile::open(vfs, directory + "/" + file.name,
                           {.bytes = file.bytes, .header_crc = file.header_crc}));
  return MemberFile{.name = file.name,
                    .bytes = file.bytes,
                    .header_bytes = opened.header_bytes().size(),
                    .header_crc = file.header_crc};
}

}  // namespace deepfreeze
