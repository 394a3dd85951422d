#include "protect/rebuilt_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/layout.h"
#include "format/names.h"
#include "protect/parity_group.h"
#include "storage/os_error.h"
#include "storage/read_only.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

// A parity file whose header has been read once.
struct ParityName {
  std::string name;
  std::uint32_t header_crc = 0;
};

// Parity files of one group, all with the same record.
struct Found {
  ParityRecord record;
  std::map<std::size_t, ParityName> files;  // by member
};

// One that could not be read, and may be good.
struct Unread {
  std::uint64_t node = 0;
  Error error;
};

// Opened once one of its files is wanted, because that reads the headers of all of them.
class LazyGroup {
 public:
  LazyGroup(Vfs& pieces, std::string directory, Found found, std::optional<Error> unread)
      : pieces_(pieces),
        directory_(std::move(directory)),
        found_(std::move(found)),
        unread_(std::move(unread)) {}

  [[nodiscard]] const ParityRecord& record() const { return found_.record; }
  [[nodiscard]] Result<const ParityGroup*> open() {
    std::call_once(once_, [this] { group_ = open_now(); });
    if (!group_) return std::unexpected(group_.error());
    return group_->get();
  }

 private:
  [[nodiscard]] Result<std::unique_ptr<ParityGroup>> open_now();

  Vfs& pieces_;
  const std::string directory_;
  const Found found_;
  std::optional<Error> unread_;
  std::once_flag once_;  // guards the next
  Result<std::unique_ptr<ParityGroup>> group_;
};

void warn_of_loss(Vfs& pieces, const std::string& path, const Error& error) {
  log_warning(fmt::format("{}: it counts as lost: {}", pieces.path_of(path), error.message()));
}

Result<std::unique_ptr<ParityGroup>> LazyGroup::open_now() {
  ParityGroup::ParityFiles files;
  for (const auto& [member, parity] : found_.files) {
    const std::string path = directory_ + "/" + parity.name;
    auto file = CheckedFile::open(pieces_, path, {.bytes = {}, .header_crc = parity.header_crc});
    if (file) {
      files.emplace(member, *std::move(file));
    } else {
      if (may_have_good_copy(file.error())) unread_ = file.error();
      warn_of_loss(pieces_, path, file.error());
    }
  }
  return ParityGroup::open(pieces_, directory_, found_.record, std::move(files), unread_);
}

// A file's place in the stream of a member.
struct Wanted {
  LazyGroup* group = nullptr;
  std::size_t member = 0;
  std::uint64_t begin = 0;  // of its header; its data begins behind that, at a whole block
  MemberFile file;
};

class RebuiltFile final : public ReadOnlyFile {
 public:
  RebuiltFile(Wanted wanted, const ParityGroup& group, std::string path)
      : wanted_(std::move(wanted)), group_(group), path_(std::move(path)) {}

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
      DF_TRY_VOID(group_.calculate(wanted_.member, wanted_.begin + first, memory.bytes()));
      const auto part = into.first(std::min<std::uint64_t>(into.size(), last - at));
      std::memcpy(part.data(), memory.bytes().data() + (at - first), part.size());
      into = into.subspan(part.size());
      at += part.size();
    }
    return {};
  }

  const Wanted wanted_;
  const ParityGroup& group_;
  const std::string path_;
};

class RebuiltFiles final : public ReadOnlyVfs {
 public:
  RebuiltFiles(Vfs& pieces, const Manifest& manifest, std::span<const std::string> parity);

  Result<std::unique_ptr<File>> open_read(std::string_view name, Access /*access*/) override {
    const auto found = wanted_.find(name);
    if (found == wanted_.end()) {
      if (const auto error = unread_of(nullptr)) {
        return std::unexpected(error->within("rebuild " + path_of(name)));
      }
      return fail(ErrorCode::kNotFound,
                  fmt::format("rebuild {}: not found: no parity covers it", path_of(name)));
    }
    DF_TRY(const ParityGroup* const group, found->second.group->open());
    return std::make_unique<RebuiltFile>(found->second, *group, path_of(name));
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
  [[nodiscard]] Status find(const std::string& name, const Manifest& manifest);
  void note_unread(const std::string& name, const Error& error);
  [[nodiscard]] std::optional<Error> unread_of(const ParityRecord* group) const;
  void add_group(Found found);

  Vfs& pieces_;
  const std::string directory_;
  std::vector<Found> all_;  // until the groups are made; then the records alone count
  std::vector<std::unique_ptr<LazyGroup>> groups_;
  std::map<std::string, Wanted, std::less<>> wanted_;  // by path in the run
  std::vector<Unread> unread_;
};

// The record without the part in which the files of a group differ.
ParityRecord common(ParityRecord record) {
  record.own = 0;
  return record;
}

bool has_node(const ParityRecord& record, std::uint64_t node) {
  return std::ranges::find(record.members, node, &Member::node) != record.members.end();
}

RebuiltFiles::RebuiltFiles(Vfs& pieces, const Manifest& manifest,
                           std::span<const std::string> parity)
    : pieces_(pieces),
      directory_(attempt_dir_name({manifest.point.step, manifest.point.attempt_id})) {
  for (const std::string& name : parity) {
    const Status found = find(name, manifest);
    if (!found) note_unread(name, found.error());
  }
  // If two records claim one file, that of more parity files holds.
  std::ranges::sort(all_, std::ranges::greater(),
                    [](const Found& found) { return found.files.size(); });
  for (const Found& found : all_) add_group(found);
}

Status RebuiltFiles::find(const std::string& name, const Manifest& manifest) {
  DF_TRY(const CheckedFile file, CheckedFile::open(pieces_, directory_ + "/" + name, {}));
  DF_TRY(const ParityRecord record, decode_parity(file.header(), manifest));
  const ParityRecord shared = common(record);
  auto known = std::ranges::find(all_, shared, &Found::record);
  if (known == all_.end()) known = all_.insert(all_.end(), {.record = shared, .files = {}});
  known->files.emplace(record.own, ParityName{.name = name, .header_crc = file.header_crc()});
  return {};
}

void RebuiltFiles::note_unread(const std::string& name, const Error& error) {
  warn_of_loss(pieces_, directory_ + "/" + name, error);
  if (may_have_good_copy(error)) unread_.push_back({parity_file_node(name).value_or(0), error});
}

// The error of a parity file that may be one of this group; null: one of any unknown group.
std::optional<Error> RebuiltFiles::unread_of(const ParityRecord* group) const {
  for (const Unread& one : unread_) {
    const bool is_known = std::ranges::any_of(
        all_, [&](const Found& found) { return has_node(found.record, one.node); });
    if (is_known ? group != nullptr && has_node(*group, one.node) : true) return one.error;
  }
  return std::nullopt;
}

void RebuiltFiles::add_group(Found found) {
  auto unread = unread_of(&found.record);
  LazyGroup& group = *groups_.emplace_back(
      std::make_unique<LazyGroup>(pieces_, directory_, std::move(found), std::move(unread)));
  const std::vector<Member>& members = group.record().members;
  for (std::size_t member = 0; member < members.size(); ++member) {
    std::uint64_t begin = 0;
    for (const MemberFile& file : members[member].files) {
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
