#include "protect/rebuilt_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/layout.h"
#include "protect/parity_group.h"
#include "storage/os_error.h"
#include "storage/read_only.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

// A file's place in the stream of a member.
struct Wanted {
  const ParityGroup* group = nullptr;
  std::size_t member = 0;
  std::uint64_t begin = 0;  // of its header; its data begins behind that, at a whole block
  MemberFile file;
};

class RebuiltFile final : public ReadOnlyFile {
 public:
  RebuiltFile(Wanted wanted, std::string path)
      : wanted_(std::move(wanted)), path_(std::move(path)) {}

  Result<std::uint64_t> size() override { return wanted_.file.bytes; }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    const std::uint64_t bytes = wanted_.file.bytes;
    const std::uint64_t header = wanted_.file.header_bytes;
    const std::uint64_t end = std::min<std::uint64_t>(bytes, offset + into.size());
    for (std::uint64_t at = offset; at < end;) {
      const bool in_header = at < header;
      const std::uint64_t stop = in_header ? std::min(end, header) : end;
      const std::uint64_t base = in_header ? 0 : round_up(header, kBlockBytes) - header;
      const Status read = read_stream(at + base, into.subspan(at - offset, stop - at));
      if (!read) return std::unexpected(read.error().within("rebuild " + path_));
      at = stop;
    }
    return end > offset ? end - offset : 0;
  }

 protected:
  [[nodiscard]] std::string path() const override { return path_; }

 private:
  // `at`: from the file's beginning in the stream. Whole blocks are calculated.
  [[nodiscard]] Status read_stream(std::uint64_t at, std::span<std::byte> into) const {
    while (!into.empty()) {
      const std::uint64_t first = at / kBlockBytes * kBlockBytes;
      const std::uint64_t last =
          std::min(round_up(at + into.size(), kBlockBytes), first + kSlabBytes);
      DF_TRY(const MappedMemory memory, MappedMemory::allocate(last - first));
      DF_TRY_VOID(wanted_.group->calculate(wanted_.member, wanted_.begin + first, memory.bytes()));
      const auto part = into.first(std::min<std::uint64_t>(into.size(), last - at));
      std::memcpy(part.data(), memory.bytes().data() + (at - first), part.size());
      into = into.subspan(part.size());
      at += part.size();
    }
    return {};
  }

  const Wanted wanted_;
  const std::string path_;
};

class RebuiltFiles final : public ReadOnlyVfs {
 public:
  RebuiltFiles(Vfs& pieces, const Manifest& manifest, std::span<const std::string> parity)
      : pieces_(pieces),
        directory_(attempt_dir_name({manifest.point.step, manifest.point.attempt_id})) {
    open_groups(manifest, parity);
  }

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access /*access*/) override {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) {
      if (unread_) return std::unexpected(unread_->within("rebuild " + path_of(name)));
      return fail(ErrorCode::kNotFound,
                  fmt::format("rebuild {}: not found: no parity covers it", path_of(name)));
    }
    return std::make_unique<RebuiltFile>(found->second, path_of(name));
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    std::vector<DirEntry> entries;
    for (const auto& [path, wanted] : wanted_) {
      const SplitName split = split_vfs_name(path);
      if (split.parent == name) entries.push_back({.name = std::string(split.leaf)});
    }
    return entries;
  }
  [[nodiscard]] std::string path_of(std::string_view name) const override {
    return fmt::format("{} (from parity)", pieces_.path_of(name));
  }

 private:
  void open_groups(const Manifest& manifest, std::span<const std::string> parity);
  void add_group(const ParityRecord& record, ParityGroup::ParityFiles files);

  Vfs& pieces_;
  const std::string directory_;
  std::vector<std::unique_ptr<ParityGroup>> groups_;
  std::map<std::string, Wanted, std::less<>> wanted_;  // by path in the run
  std::optional<Error> unread_;                        // of a parity file that may be good
};

// The record without the part in which the files of a group differ.
ParityRecord common(ParityRecord record) {
  record.own = 0;
  return record;
}

// Parity files of one group, all with the same record.
struct Found {
  ParityRecord record;
  ParityGroup::ParityFiles files;
};

void add(std::vector<Found>& all, const ParityRecord& record, CheckedFile file) {
  const ParityRecord shared = common(record);
  auto known = std::ranges::find(all, shared, &Found::record);
  if (known == all.end()) known = all.insert(all.end(), {.record = shared, .files = {}});
  known->files.emplace(record.own, std::move(file));
}

void RebuiltFiles::open_groups(const Manifest& manifest, std::span<const std::string> parity) {
  std::vector<Found> all;
  for (const std::string& name : parity) {
    auto file = CheckedFile::open(pieces_, directory_ + "/" + name, {});
    auto record = file ? decode_parity(file->header(), manifest)
                       : Result<ParityRecord>(std::unexpected(file.error()));
    if (record) {
      add(all, *record, *std::move(file));
    } else {
      if (may_have_good_copy(record.error())) unread_ = record.error();
      log_warning(fmt::format("{}: it counts as lost: {}", pieces_.path_of(directory_ + "/" + name),
                              record.error().message()));
    }
  }
  // If two records claim one file, that of more parity files holds.
  std::ranges::sort(all, std::ranges::greater(),
                    [](const Found& found) { return found.files.size(); });
  for (Found& found : all) add_group(found.record, std::move(found.files));
}

void RebuiltFiles::add_group(const ParityRecord& record, ParityGroup::ParityFiles files) {
  auto opened = ParityGroup::open(pieces_, directory_, record, std::move(files), unread_);
  if (!opened) return log_warning(opened.error().message());
  const ParityGroup& group = *groups_.emplace_back(*std::move(opened));
  for (std::size_t member = 0; member < group.size(); ++member) {
    std::uint64_t begin = 0;
    for (const MemberFile& file : group.member(member).files) {
      wanted_.emplace(directory_ + "/" + file.name,
                      Wanted{.group = &group, .member = member, .begin = begin, .file = file});
      begin += round_up(file.header_bytes, kBlockBytes) +
               round_up(file.bytes - file.header_bytes, kBlockBytes);
    }
  }
}

}  // namespace

std::unique_ptr<Vfs> open_rebuilt_files(Vfs& pieces, const Manifest& manifest,
                                        std::span<const std::string> parity) {
  return std::make_unique<RebuiltFiles>(pieces, manifest, parity);
}

}  // namespace deepfreeze
