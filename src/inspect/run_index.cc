// Looking a run up.
//
//  1  The index is read, and the key calculated anew from the files' stamps. If both are equal, the
//     index is the answer.
//  2  Otherwise the run is read, between two calculations of the key.
//  3  If both are equal, and no file has changed in the last moments, the index is written under a
//     temporary name and renamed. A failure of this is nobody's business.
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

constexpr std::uint64_t kIndexBytesMax = 64 << 20;
constexpr std::int64_t kNanosPerMicro = 1000;

struct Key {
  std::string text;
  std::int64_t changed_micros = std::numeric_limits<std::int64_t>::min();  // of the newest file
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
  std::int64_t changed_micros_ = std::numeric_limits<std::int64_t>::min();
};

Result<Key> key_of(Vfs& vfs, const TagNumbers& tags) { return KeyMaker(vfs).make(tags); }

TagNumbers tag_numbers_of(const RunListing& listing) {
  TagNumbers numbers;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.given) numbers[attempt_dir_name(attempt.name)] = attempt.given->number;
  }
  return numbers;
}

// Whatever is odd about a run is to be found anew each time, with its messages.
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

Status read_metrics(const JsonValue& object, CataloguedRun& run) {
  const JsonValue* metrics = object.find("metrics");
  if (metrics == nullptr || metrics->as_object() == nullptr) return corrupt("metrics");
  for (const auto& [name, column] : *metrics->as_object()) {
    const JsonArray* values = column.as_array();
    if (values == nullptr || values->size() != run.steps.size()) return corrupt("metrics");
    for (std::size_t i = 0; i < values->size(); ++i) {
      const JsonValue& value = (*values)[i];
      if (is_null(value)) continue;
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
  return tags;
}

Status read_tags(const JsonValue& object, CataloguedRun& run) {
  DF_TRY(const JsonArray* list, get_array(object, "tag_sets"));
  std::vector<Tags> sets;
  for (const JsonValue& value : *list) {
    DF_TRY(sets.emplace_back(), tags_of(value));
  }
  return read_column(object, "tags", run, &CataloguedStep::tags,
                     [&](const JsonValue& value) -> std::optional<Tags> {
                       const auto place = u64_of(value);
                       if (!place || *place >= sets.size()) return std::nullopt;
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

Status read_steps(const JsonValue& object, CataloguedRun& run) {
  // Never one value, so that a short text can't ask for much memory.
  DF_TRY(const JsonArray* steps, get_array(object, "step"));
  run.steps.resize(steps->size());
  DF_TRY_VOID(read_column(object, "step", run, &CataloguedStep::step, u64_of));
  DF_TRY_VOID(read_column(object, "wall_micros", run, &CataloguedStep::wall_micros, i64_of));
  DF_TRY_VOID(read_column(object, "bytes", run, &CataloguedStep::bytes, u64_of));
  DF_TRY_VOID(read_column(object, "shared_bytes", run, &CataloguedStep::shared_bytes, u64_of));
  DF_TRY_VOID(read_column(object, "abandoned", run, &CataloguedStep::abandoned, bool_of));
  DF_TRY_VOID(read_tags(object, run));
  return read_metrics(object, run);
}

// Step 1. Empty if there is no index that counts.
std::optional<CataloguedRun> recall(Vfs& vfs) {
  const auto text = read_file(vfs, kIndexFile, kIndexBytesMax);
  if (!text) return std::nullopt;
  auto index = decode_index(*text);
  if (!index) return std::nullopt;
  const auto key = key_of(vfs, index->tag_numbers);
  if (!key || key->text != index->key) return std::nullopt;
  return std::move(index->run);
}

// Step 3, without a sync.
Status write_index(Vfs& vfs, std::string_view text) {
  const std::string temporary = fmt::format("{}.{}.tmp", kIndexFile, hex64(random_id()));
  DF_TRY(auto file, vfs.create(temporary, Access::kBuffered));
  Status written = file->write_at(0, std::as_bytes(std::span(text)));
  if (written) written = file->close();
  if (written) written = vfs.rename_replacing(temporary, kIndexFile);
  if (!written) std::ignore = vfs.remove_file(temporary);
  return written;
}

}  // namespace

Result<RunIndex> decode_index(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "index"));
  RunIndex index;
  DF_TRY(index.run.run_id, run_id_of(object));
  DF_TRY(index.key, get_string(object, "key"));
  DF_TRY(index.tag_numbers, tag_numbers_of(object));
  DF_TRY(index.run.parent, parent_of(object));
  DF_TRY(index.run.claimed_micros, get_i64(object, "claimed_micros"));
  DF_TRY_VOID(read_steps(object, index.run));
  const JsonValue* best = object.find("best");
  if (best == nullptr) return corrupt("best");
  if (!is_null(*best)) {
    const auto place = u64_of(*best);
    if (!place || *place >= index.run.steps.size()) return corrupt("best");
    index.run.best = *place;
  }
  return index;
}

Result<CataloguedRun> look_up(Vfs& vfs, std::int64_t now_micros) {
  if (auto known = recall(vfs)) return *std::move(known);
  const auto before = key_of(vfs, {});
  DF_TRY(const RunListing listing, read_run(vfs));
  CataloguedRun run = catalogued(listing);
  if (!before || run.faults > 0 || !is_plain(listing)) return run;
  const auto after = key_of(vfs, {});
  if (!after || after->text != before->text) return run;
  RunIndex index{.key = {}, .tag_numbers = tag_numbers_of(listing), .run = run};
  const auto key = key_of(vfs, index.tag_numbers);
  if (!key || key->changed_micros + kSettledMicros >= now_micros) return run;
  index.key = key->text;
  std::ignore = write_index(vfs, encode_index(index));
  return run;
}

}  // namespace deepfreeze
