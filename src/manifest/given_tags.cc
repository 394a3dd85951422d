// Giving tags to a checkpoint.
//
//  1  The record with the highest number is read, and the change applied to its tags.
//  2  A record of the next number is written and gets its name without replacing: of two processes
//     that read the same record, one starts again at step 1.
//  3  Sync the attempt's directory: the tags are durable.
//  4  List it again. A higher record may have been made from one that this process did not see,
//     and then the change may not be in it: start again at step 1. If the manifest is gone, a
//     collector was faster, and the record is removed: it tags nothing.
//  5  Remove the records below, as far as the disk allows: they do not count any more.
#include "manifest/given_tags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kTagFailPoints = {"tag.written", "tag.renamed", "tag.synced"};

// Highest first.
std::vector<std::uint64_t> tag_numbers(const std::vector<DirEntry>& entries) {
  std::vector<std::uint64_t> numbers;
  for (const DirEntry& entry : entries) {
    if (const auto number = parse_tag_file_name(entry.name)) numbers.push_back(*number);
  }
  std::ranges::sort(numbers, std::greater());
  return numbers;
}

Result<TagRecord> read_record(Vfs& vfs, const AttemptName& name, std::uint64_t number) {
  const std::string path = join_name(attempt_dir_name(name), tag_file_name(number));
  DF_TRY(const std::string text, read_file(vfs, path, kRecordBytesMax));
  auto record = decode_tags(text);
  if (!record) return std::unexpected(record.error().within("read " + vfs.path_of(path)));
  if (record->attempt == name && record->number == number) return record;
  return fail(ErrorCode::kCorrupt, fmt::format("read {}: it is number {} of {}", vfs.path_of(path),
                                               record->number, attempt_dir_name(record->attempt)));
}

// Step 1. Once this process has removed a tag, it may be gone at the next try.
Result<Tags> changed(Tags tags, const TagChange& change, const AttemptName& name, bool is_again) {
  for (const std::string& tag : change.remove) {
    if (tags.erase(tag) > 0 || is_again) continue;
    return fail(ErrorCode::kNotFound,
                fmt::format("{} was given no tag '{}'", attempt_dir_name(name), tag));
  }
  for (const auto& [tag, value] : change.set) tags.insert_or_assign(tag, value);
  DF_TRY_VOID(check_tags(tags));
  return tags;
}

Result<std::vector<DirEntry>> list_committed(Vfs& vfs, const AttemptName& name) {
  auto entries = vfs.list(attempt_dir_name(name));
  if (!entries) return std::unexpected(std::move(entries).error());
  if (has_name(*entries, kManifestFile)) return entries;
  return fail(ErrorCode::kNotFound, vfs.path_of(attempt_dir_name(name)) + " was deleted meanwhile");
}

// A larger record could never be read again. Escapes make a value of control characters six times
// as long.
Status check_size(std::string_view text) {
  if (text.size() <= kRecordBytesMax) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the tags of a checkpoint would make a record of {} bytes, and {} are "
                          "allowed: give fewer or shorter ones, or remove some",
                          text.size(), kRecordBytesMax));
}

class Tagging {
 public:
  Tagging(Vfs& vfs, const Manifest& manifest)
      : vfs_(vfs),
        run_id_(manifest.run_id),
        name_{.step = manifest.point.step, .attempt_id = manifest.point.attempt_id} {}

  // Steps 1 to 5. Empty: another process was faster at the same time, so try again.
  Result<std::optional<GivenTags>> once(const TagChange& change);

 private:
  Result<GivenTags> before();
  Status place(std::uint64_t number, const Tags& tags);
  Result<std::optional<GivenTags>> settle(GivenTags own);

  Vfs& vfs_;
  std::string run_id_;
  AttemptName name_;
  bool is_again_ = false;
};

Result<GivenTags> Tagging::before() {
  DF_TRY(const auto entries, list_committed(vfs_, name_));
  GivenTags before = read_given_tags(vfs_, name_, entries).value_or(GivenTags{});
  if (before.fault) return std::unexpected(*std::move(before.fault));
  if (before.number < std::numeric_limits<std::uint64_t>::max()) return before;
  return fail(ErrorCode::kCorrupt,
              fmt::format("{}: no record of tags can have a higher number than {}",
                          vfs_.path_of(attempt_dir_name(name_)), tag_file_name(before.number)));
}

// Step 2.
Status Tagging::place(std::uint64_t number, const Tags& tags) {
  const std::string text = encode_tags({.run_id = run_id_,
                                        .attempt = name_,
                                        .number = number,
                                        .wall_micros = wall_micros(),
                                        .tags = tags});
  DF_TRY_VOID(check_size(text));
  return place_record(
      vfs_, {.directory = attempt_dir_name(name_), .name = tag_file_name(number), .text = text},
      kTagFailPoints);
}

Result<std::optional<GivenTags>> Tagging::once(const TagChange& change) {
  DF_TRY(const GivenTags before, this->before());
  DF_TRY(Tags tags, changed(before.tags, change, name_, std::exchange(is_again_, true)));
  if (tags == before.tags) return before.number == 0 ? before : settle(before);
  const std::uint64_t number = before.number + 1;
  const Status placed = place(number, tags);
  if (!placed && placed.error().code() == ErrorCode::kExists) return std::nullopt;
  DF_TRY_VOID(placed);
  auto settled = settle({.number = number, .tags = std::move(tags), .fault = {}});
  if (!settled && settled.error().code() == ErrorCode::kNotFound) {
    std::ignore = vfs_.remove_file(join_name(attempt_dir_name(name_), tag_file_name(number)));
  }
  return settled;
}

// Steps 3 to 5.
Result<std::optional<GivenTags>> Tagging::settle(GivenTags own) {
  const std::string directory = attempt_dir_name(name_);
  DF_TRY_VOID(settle_record(vfs_, directory, kTagFailPoints));
  DF_TRY(const auto entries, list_committed(vfs_, name_));
  const std::vector<std::uint64_t> numbers = tag_numbers(entries);
  if (numbers.empty() || numbers.front() != own.number) return std::nullopt;
  for (const std::uint64_t number : numbers) {
    if (number == own.number) continue;
    std::ignore = vfs_.remove_file(join_name(directory, tag_file_name(number)));
  }
  return own;
}

}  // namespace

std::optional<GivenTags> read_given_tags(Vfs& vfs, const AttemptName& name,
                                         const std::vector<DirEntry>& entries) {
  std::vector<std::uint64_t> numbers = tag_numbers(entries);
  for (int tries = 1; !numbers.empty(); ++tries) {
    auto record = read_record(vfs, name, numbers.front());
    GivenTags given{.number = numbers.front(), .tags = {}, .fault = {}};
    if (record) {
      given.tags = std::move(record->tags);
      return given;
    }
    given.fault = std::move(record).error();
    if (given.fault->code() != ErrorCode::kNotFound || tries == kTagTriesMax) return given;
    // A newer record has replaced it, or the checkpoint is being deleted.
    const auto anew = vfs.list(attempt_dir_name(name));
    numbers = anew ? tag_numbers(*anew) : std::vector<std::uint64_t>();
  }
  return std::nullopt;
}

Tags tags_of(const AttemptState& attempt) {
  Tags tags = attempt.manifest ? attempt.manifest->annotations.tags : Tags{};
  if (!attempt.given) return tags;
  for (const auto& [name, value] : attempt.given->tags) tags.insert_or_assign(name, value);
  return tags;
}

bool is_tagged(const AttemptState& attempt) {
  return attempt.given && (attempt.given->fault || !attempt.given->tags.empty());
}

bool has_tag_record(const std::vector<DirEntry>& entries) { return !tag_numbers(entries).empty(); }

Result<GivenTags> change_tags(Vfs& vfs, const Manifest& manifest, const TagChange& change) {
  Tagging tagging(vfs, manifest);
  for (int tries = 1; tries <= kTagTriesMax; ++tries) {
    DF_TRY(auto given, tagging.once(change));
    if (given) return *std::move(given);
  }
  return fail(ErrorCode::kBusy, "too many processes give tags to one checkpoint at the same time");
}

}  // namespace deepfreeze
