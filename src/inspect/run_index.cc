// Looking a run up.
//
//  1  The index is read, and the key calculated anew from the files' stamps. If both are equal, the
//     rest of the index is decoded: it is the answer. Anybody may have written it, so that its
//     size, and the memory that it takes when it is decoded, are bounded by the names in the
//     directory.
//  2  Otherwise the run is read, between two calculations of the key without tags. The key of the
//     new index is calculated before the second: it has no change that the second does not show.
//  3  If both are equal, the index is written under a temporary name. That file has the time by the
//     file system's own clock: if no other file has changed in the last moments, it is renamed. A
//     failure of this is nobody's business.
#include "inspect/run_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <tuple>
#include <utility>

#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"
#include "format/json_parts.h"
#include "format/members.h"
#include "manifest/name_kind.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kIndexBytesMax = 16 << 20;
constexpr std::uint64_t kIndexBytesBase = 1 << 10;
constexpr std::uint64_t kIndexBytesPerEntry = 4 << 10;
constexpr std::int64_t kNanosPerMicro = 1000;

struct Key {
  std::string text;
  std::int64_t changed_micros = 0;  // of the newest file
};

// Collects the stamps of the files that a listing depends on.
class KeyMaker {
 public:
  explicit KeyMaker(Vfs& vfs) : vfs_(vfs) {}

  Result<Key> make(const TagNumbers& tags) {
    DF_TRY(const std::vector<DirEntry> entries, vfs_.list(""));
    for (const DirEntry& entry : entries) {
      switch (kind_in_run(entry)) {
        case NameKind::kAttempt:
          add_text(entry.name);
          DF_TRY_VOID(add_attempt(entry.name, tags));
          break;
        case NameKind::kRunRecord:
        case NameKind::kClaim:
        case NameKind::kNodeMarker:
          add_text(entry.name);
          DF_TRY_VOID(add(entry.name));
          break;
        default:
          break;  // no listing depends on it
      }
    }
    return Key{.text = fmt::to_string(text_), .changed_micros = changed_micros_};
  }

 private:
  void add_text(std::string_view text) { text_.append(text.data(), text.data() + text.size()); }
  void add_number(std::integral auto number) {
    const fmt::format_int digits(number);
    text_.push_back(' ');
    add_text({digits.data(), digits.size()});
  }

  Status add_attempt(const std::string& name, const TagNumbers& tags) {
    DF_TRY_VOID(add(name));
    DF_TRY_VOID(add_file_of(name, kManifestFile));
    const auto tagged = tags.find(name);
    if (tagged == tags.end()) return {};
    return add_file_of(name, tag_file_name(tagged->second));
  }

  Status add_file_of(const std::string& attempt, std::string_view name) {
    path_.assign(attempt).append("/").append(name);
    return add(path_);
  }

  Status add(const std::string& path) {
    const auto stamp = vfs_.stamp(path);
    if (!stamp && stamp.error().code() != ErrorCode::kNotFound) {
      return std::unexpected(stamp.error());
    }
    if (!stamp) {
      add_text(" -");
      return {};
    }
    add_number(stamp->inode);
    add_number(stamp->bytes);
    add_number(stamp->changed_nanos);
    changed_micros_ = std::max(changed_micros_, stamp->changed_nanos / kNanosPerMicro);
    return {};
  }

  Vfs& vfs_;
  fmt::memory_buffer text_;
  std::string path_;  // kept for its memory
  std::int64_t changed_micros_ = 0;
};

Result<Key> key_of(Vfs& vfs, const TagNumbers& tags) { return KeyMaker(vfs).make(tags); }

TagNumbers tag_numbers_of(const RunListing& listing) {
  TagNumbers numbers;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.given) numbers[attempt_dir_name(attempt.name)] = attempt.given->number;
  }
  return numbers;
}

// An oddity of a run is to be found anew each time, with its messages.
bool is_plain(const RunListing& listing) {
  return std::ranges::all_of(
      listing.attempts, [](const AttemptState& attempt) { return attempt.manifest.has_value(); });
}

// One value for each step; a column of equal values is that value, which halves most indices.
template <class T>
void write_values(JsonWriter& json, std::string_view name, const std::vector<T>& values) {
  const bool is_constant =
      !values.empty() && std::ranges::all_of(values, [&](T one) { return one == values[0]; });
  is_constant ? json.members(name, static_cast<T>(values[0])) : json.members(name, values);
}

template <class T>
void write_column(JsonWriter& json, std::string_view name, const CataloguedRun& run,
                  T CataloguedStep::* member) {
  std::vector<T> values;
  for (const CataloguedStep& step : run.steps) values.push_back(step.*member);
  write_values(json, name, values);
}

void write_metrics(JsonWriter& json, const CataloguedRun& run) {
  std::map<std::string_view, std::vector<std::optional<double>>> columns;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    for (const auto& [name, value] : run.steps[i].metrics) {
      auto& column = columns[name];
      column.resize(run.steps.size());
      column[i] = value;
    }
  }
  json.key("metrics");
  json.begin_object();
  for (const auto& [name, column] : columns) json.members(name, column);
  json.end_object();
}

// The most that a listing of so many names may need. A larger index is neither read nor written.
std::uint64_t index_bytes_max(std::size_t entries) {
  return std::min(kIndexBytesMax, kIndexBytesBase + entries * kIndexBytesPerEntry);
}

std::size_t bytes_of(const Tags& tags) {
  std::size_t sum = 0;
  for (const auto& [name, value] : tags) sum += name.size() + value.size();
  return sum;
}

// Whether the decoder will take the steps.
bool fits(const CataloguedRun& run) {
  std::uint64_t bytes = 0;
  for (const CataloguedStep& step : run.steps) {
    bytes += bytes_of(step.tags);
    for (const auto& [name, value] : step.metrics) bytes += name.size();
  }
  return bytes <= index_bytes_max(run.steps.size());
}

// Most checkpoints of a run have the same tags: each set of them is written once.
void write_tags(JsonWriter& json, const CataloguedRun& run) {
  std::map<Tags, std::size_t> places;
  std::vector<Tags> sets;
  std::vector<std::size_t> column;
  for (const CataloguedStep& step : run.steps) {
    const auto [found, is_new] = places.emplace(step.tags, sets.size());
    if (is_new) sets.push_back(step.tags);
    column.push_back(found->second);
  }
  json.members("tag_sets", sets);
  write_values(json, "tags", column);
}

}  // namespace

std::string encode_index(const RunIndex& index) {
  const CataloguedRun& run = index.run;
  JsonWriter json = begin_record("index", run.run_id);
  json.members("key", index.key, "tag_records", index.tag_numbers);
  add_parent(json, run.parent);
  json.members("claimed_micros", whole(run.claimed_micros), "best", run.best);
  json.members("step", json_array(run.steps, [](JsonWriter& inner, const CataloguedStep& one) {
                 inner.value(one.step);
               }));
  write_column(json, "wall_micros", run, &CataloguedStep::wall_micros);
  write_column(json, "bytes", run, &CataloguedStep::bytes);
  write_column(json, "shared_bytes", run, &CataloguedStep::shared_bytes);
  write_column(json, "abandoned", run, &CataloguedStep::abandoned);
  write_metrics(json, run);
  write_tags(json, run);
  return sealed(std::move(json));
}

namespace {

std::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorCode::kCorrupt, fmt::format("index: bad {}", what));
}

template <class T, class Get>
Status read_column(const JsonValue& object, std::string_view name, CataloguedRun& run,
                   T CataloguedStep::* member, Get get) {
  const JsonValue* column = object.find(name);
  if (column == nullptr) return corrupt(name);
  const JsonArray* values = column->as_array();
  if (values != nullptr && values->size() != run.steps.size()) return corrupt(name);
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const auto value = get(values == nullptr ? *column : (*values)[i]);
    if (!value) return corrupt(name);
    run.steps[i].*member = *value;
  }
  return {};
}

std::optional<std::uint64_t> u64_of(const JsonValue& value) {
  const std::uint64_t* number = value.as_u64();
  return number == nullptr ? std::nullopt : std::optional(*number);
}

std::optional<std::int64_t> i64_of(const JsonValue& value) {
  if (const std::int64_t* number = value.as_i64()) return *number;
  const std::uint64_t* number = value.as_u64();
  if (number == nullptr || !std::in_range<std::int64_t>(*number)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<bool> bool_of(const JsonValue& value) {
  const bool* found = value.as_bool();
  return found == nullptr ? std::nullopt : std::optional(*found);
}

bool is_null(const JsonValue& value) {
  return value.as_bool() == nullptr && !value.as_number() && value.as_string() == nullptr &&
         value.as_array() == nullptr && value.as_object() == nullptr;
}

// Memory that a short text may ask for: each step has copies of its tags and its metrics' names.
class Room {
 public:
  explicit Room(std::size_t steps) : left_(index_bytes_max(steps)) {}
  [[nodiscard]] bool take(std::size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  std::uint64_t left_;
};

Status read_metrics(const JsonValue& object, CataloguedRun& run, Room& room) {
  const JsonValue* metrics = object.find("metrics");
  if (metrics == nullptr || metrics->as_object() == nullptr) return corrupt("metrics");
  for (const auto& [name, column] : *metrics->as_object()) {
    const JsonArray* values = column.as_array();
    if (values == nullptr || values->size() != run.steps.size()) return corrupt("metrics");
    for (std::size_t i = 0; i < values->size(); ++i) {
      const JsonValue& value = (*values)[i];
      if (is_null(value)) continue;
      if (!room.take(name.size())) return corrupt("metrics");
      DF_TRY(run.steps[i].metrics[name], metric_of(name, value));
    }
  }
  return {};
}

Result<Tags> tags_of(const JsonValue& value) {
  if (value.as_object() == nullptr) return corrupt("tag_sets");
  Tags tags;
  for (const auto& [name, text] : *value.as_object()) {
    if (text.as_string() == nullptr) return corrupt("tag_sets");
    tags.emplace(name, *text.as_string());
  }
  if (tags.size() > 2 * kTagsMax) return corrupt("tag_sets");
  return tags;
}

Status read_tags(const JsonValue& object, CataloguedRun& run, Room& room) {
  DF_TRY(const JsonArray* list, get_array(object, "tag_sets"));
  std::vector<Tags> sets;
  for (const JsonValue& value : *list) {
    DF_TRY(sets.emplace_back(), tags_of(value));
  }
  return read_column(object, "tags", run, &CataloguedStep::tags,
                     [&](const JsonValue& value) -> std::optional<Tags> {
                       const auto place = u64_of(value);
                       if (!place || *place >= sets.size()) return std::nullopt;
                       if (!room.take(bytes_of(sets[*place]))) return std::nullopt;
                       return sets[*place];
                     });
}

Result<TagNumbers> tag_numbers_of(const JsonValue& object) {
  const JsonValue* member = object.find("tag_records");
  if (member == nullptr || member->as_object() == nullptr) return corrupt("tag_records");
  TagNumbers numbers;
  for (const auto& [name, number] : *member->as_object()) {
    if (number.as_u64() == nullptr) return corrupt("tag_records");
    numbers.emplace(name, *number.as_u64());
  }
  return numbers;
}

Status read_steps(const JsonValue& object, CataloguedRun& run, std::size_t steps_max) {
  // Never one value, so that a short text can't ask for much memory.
  DF_TRY(const JsonArray* steps, get_array(object, "step"));
  if (steps->size() > steps_max) return corrupt("step");
  Room room(steps->size());
  run.steps.resize(steps->size());
  DF_TRY_VOID(read_column(object, "step", run, &CataloguedStep::step, u64_of));
  DF_TRY_VOID(read_column(object, "wall_micros", run, &CataloguedStep::wall_micros, i64_of));
  DF_TRY_VOID(read_column(object, "bytes", run, &CataloguedStep::bytes, u64_of));
  DF_TRY_VOID(read_column(object, "shared_bytes", run, &CataloguedStep::shared_bytes, u64_of));
  DF_TRY_VOID(read_column(object, "abandoned", run, &CataloguedStep::abandoned, bool_of));
  DF_TRY_VOID(read_tags(object, run, room));
  return read_metrics(object, run, room);
}

// The members that tell whether the others count.
Status read_head(const JsonValue& object, RunIndex& index) {
  DF_TRY(index.run.run_id, run_id_of(object));
  DF_TRY(index.key, get_string(object, "key"));
  DF_TRY(index.tag_numbers, tag_numbers_of(object));
  return {};
}

Status read_rest(const JsonValue& object, CataloguedRun& run, std::size_t steps_max) {
  DF_TRY(run.parent, parent_of(object));
  DF_TRY(run.claimed_micros, get_i64(object, "claimed_micros"));
  DF_TRY_VOID(read_steps(object, run, steps_max));
  const JsonValue* best = object.find("best");
  if (best == nullptr) return corrupt("best");
  if (is_null(*best)) return {};
  const auto place = u64_of(*best);
  if (!place || *place >= run.steps.size()) return corrupt("best");
  run.best = *place;
  return {};
}

// Step 1. An error if there is no index that counts.
Result<CataloguedRun> recall(Vfs& vfs) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  if (!has_name(entries, kIndexFile)) return fail(ErrorCode::kNotFound, "no index");
  DF_TRY(const std::string text, read_file(vfs, kIndexFile, index_bytes_max(entries.size())));
  DF_TRY(const JsonValue object, parse_record(text, "index"));
  RunIndex index;
  DF_TRY_VOID(read_head(object, index));
  DF_TRY(const Key key, key_of(vfs, index.tag_numbers));
  if (key.text != index.key) return corrupt("key");
  const auto attempts = std::ranges::count_if(
      entries, [](const DirEntry& entry) { return kind_in_run(entry) == NameKind::kAttempt; });
  DF_TRY_VOID(read_rest(object, index.run, static_cast<std::size_t>(attempts)));
  return std::move(index.run);
}

// Whether the file was written later than that. Our own clock may be another one than the file
// system's.
Status check_later(Vfs& vfs, std::string_view name, std::int64_t than_micros) {
  DF_TRY(const Stamp stamp, vfs.stamp(name));
  if (stamp.changed_nanos / kNanosPerMicro > than_micros) return {};
  return fail(ErrorCode::kBusy, "the run has changed just now");
}

// Step 3, without a sync.
Status write_index(Vfs& vfs, std::string_view text, std::int64_t later_than_micros) {
  const std::string temporary = fmt::format("{}.{}.tmp", kIndexFile, hex64(random_id()));
  DF_TRY(auto file, vfs.create(temporary, Access::kBuffered));
  Status written = file->write_at(0, std::as_bytes(std::span(text)));
  if (written) written = file->close();
  if (written) written = check_later(vfs, temporary, later_than_micros);
  if (written) written = vfs.rename_replacing(temporary, kIndexFile);
  if (!written) std::ignore = vfs.remove_file(temporary);
  return written;
}

}  // namespace

Result<RunIndex> decode_index(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "index"));
  RunIndex index;
  DF_TRY_VOID(read_head(object, index));
  DF_TRY_VOID(read_rest(object, index.run, std::numeric_limits<std::size_t>::max()));
  return index;
}

Result<CataloguedRun> look_up(Vfs& vfs, std::int64_t settled_micros) {
  if (auto known = recall(vfs)) return known;
  const auto before = key_of(vfs, {});
  DF_TRY(const RunListing listing, read_run(vfs));
  CataloguedRun run = catalogued(listing);
  if (!before || run.faults > 0 || !is_plain(listing)) return run;
  RunIndex index{.key = {}, .tag_numbers = tag_numbers_of(listing), .run = run};
  const auto key = key_of(vfs, index.tag_numbers);
  const auto after = key_of(vfs, {});
  if (!key || !after || after->text != before->text) return run;
  index.key = key->text;
  const std::string text = encode_index(index);
  const auto entries = vfs.list("");
  if (!entries || !fits(run) || text.size() > index_bytes_max(entries->size())) return run;
  std::ignore = write_index(vfs, text, key->changed_micros + settled_micros);
  return run;
}

}  // namespace deepfreeze
