#include "format/header_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/try.h"
#include "format/header_ranges.h"
#include "format/header_text.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

// Writes the properties for which safetensors has no place; nothing for most tensors.
void append_extra(fmt::memory_buffer& out, const TensorSpec& spec) {
  if (spec.logical_dtype.empty() && !spec.box) return;
  out.push_back(out.size() == 0 ? '{' : ',');
  append_header_string(out, spec.key);
  out.push_back(':');
  const std::size_t begin = out.size();
  if (!spec.logical_dtype.empty()) {
    append_text(out, ",\"logical_dtype\":");
    append_header_string(out, spec.logical_dtype);
  }
  if (spec.box) {
    append_text(out, ",\"offset\":");
    append_json_array(out, spec.box->offset);
    append_text(out, ",\"global_shape\":");
    append_json_array(out, spec.global_shape);
  }
  out.data()[begin] = '{';
  out.push_back('}');
}

bool has_box(const ShardEntry& entry) { return entry.spec.box.has_value(); }

// Writes each entry's place for torch's readers of sharded safetensors. If they find the member at
// all, they expect every key of the file in it.
void append_sharding(fmt::memory_buffer& out, const std::vector<ShardEntry>& entries) {
  if (std::ranges::none_of(entries, has_box)) return;
  fmt::memory_buffer text;
  for (const ShardEntry& entry : entries) {
    text.push_back(text.size() == 0 ? '{' : ',');
    append_header_string(text, entry.spec.key);
    append_text(text, ":{\"saved_offsets\":");
    append_json_array(text, stored_box(entry.spec).offset);
    text.push_back('}');
  }
  text.push_back('}');
  append_metadata_member(out, kShardingKey, {text.data(), text.size()});
}

std::string extras_of(const std::vector<ShardEntry>& entries) {
  fmt::memory_buffer extras;
  for (const ShardEntry& entry : entries) append_extra(extras, entry.spec);
  if (extras.size() == 0) return {};
  extras.push_back('}');
  fmt::memory_buffer out;
  append_metadata_member(out, kTensorsKey, {extras.data(), extras.size()});
  append_sharding(out, entries);
  return fmt::to_string(out);
}

void append_entry(fmt::memory_buffer& out, const ShardEntry& entry) {
  out.push_back(',');
  append_header_string(out, entry.spec.key);
  append_text(out, ":{\"dtype\":\"");
  append_text(out, dtype_name(entry.spec.dtype));
  append_text(out, "\",\"shape\":");
  append_json_array(out, entry.spec.shape);
  append_text(out, ",\"data_offsets\":");
  append_json_array(out, std::array{entry.extent.begin, entry.extent.end});
  out.push_back('}');
}

std::string members_of(const std::vector<ShardEntry>& entries) {
  fmt::memory_buffer out;
  for (const ShardEntry& entry : entries) append_entry(out, entry);
  return fmt::to_string(out);
}

// An upper bound for the size of a text as a JSON string.
std::uint64_t escaped_bytes_at_most(std::string_view text) {
  constexpr std::uint64_t kMore = 5;  // \u0000 in place of one byte
  const auto is_escaped = [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; };
  return text.size() + kMore * static_cast<std::uint64_t>(std::ranges::count_if(text, is_escaped));
}

// An upper bound for an entry's size in the members and the extras; `with_boxes`: some entry has a
// box.
std::uint64_t text_bytes_at_most(const ShardEntry& entry, bool with_boxes) {
  constexpr std::uint64_t kFrame = 64;   // names of members, quotes, braces
  constexpr std::uint64_t kNumber = 21;  // a u64 and its comma
  const TensorSpec& spec = entry.spec;
  const std::uint64_t key_bytes = escaped_bytes_at_most(spec.key);
  const std::uint64_t shape_bytes = spec.shape.size() * kNumber;
  const std::uint64_t sharding = with_boxes ? 2 * (kFrame + key_bytes + shape_bytes) : 0;
  const std::uint64_t bytes = kFrame + key_bytes + shape_bytes + 2 * kNumber + sharding;
  if (spec.logical_dtype.empty() && !spec.box) return bytes;
  return bytes +
         2 * (kFrame + key_bytes + escaped_bytes_at_most(spec.logical_dtype) + 2 * shape_bytes);
}

// The index behind the entries of the file that begins with entry `first`.
std::size_t end_of_file(const std::vector<ShardEntry>& entries, std::size_t first,
                        const HeaderBudget& budget) {
  const std::uint64_t range_bytes = budget.with_ranges ? kRangeDigits : 0;
  const bool with_boxes = std::ranges::any_of(std::span(entries).subspan(first), has_box);
  std::uint64_t text_bytes = 0;
  for (std::size_t i = first; i < entries.size(); ++i) {
    text_bytes += text_bytes_at_most(entries[i], with_boxes) + range_bytes;
    const std::uint64_t data_bytes = entries[i].extent.end - entries[first].extent.begin;
    if (i > first && text_bytes + kCrcDigits * block_count(data_bytes) > budget.table_bytes) {
      return i;
    }
  }
  return entries.size();
}

Result<TableText> write_file(std::span<ShardEntry> entries, bool with_ranges) {
  const std::uint64_t begin = entries.front().extent.begin;
  const std::uint64_t end = entries.back().extent.end;
  std::vector<ShardEntry> own;
  own.reserve(entries.size());
  for (ShardEntry& entry : entries) {
    own.push_back(std::move(entry));
    own.back().extent.begin -= begin;
    own.back().extent.end -= begin;
  }
  return write_table(std::move(own), end - begin, with_ranges);
}

}  // namespace

Result<TableText> write_table(std::vector<ShardEntry> entries, std::uint64_t data_bytes,
                              bool with_ranges) {
  DF_TRY_VOID(check_entries(entries, data_bytes));
  TableText table{.entries = {},
                  .data_bytes = data_bytes,
                  .members = members_of(entries),
                  .extras = extras_of(entries),
                  .range_count = {}};
  if (with_ranges) table.range_count = count_with_range(entries);
  table.entries = std::move(entries);
  return table;
}

Result<std::vector<TableText>> write_tables(std::vector<ShardEntry> entries,
                                            const HeaderBudget& budget) {
  std::vector<TableText> tables;
  for (std::size_t first = 0; first < entries.size();) {
    const std::size_t end = end_of_file(entries, first, budget);
    DF_TRY(TableText table,
           write_file(std::span(entries).subspan(first, end - first), budget.with_ranges));
    tables.push_back(std::move(table));
    first = end;
  }
  if (!tables.empty()) return tables;
  tables.emplace_back();
  if (budget.with_ranges) tables.front().range_count = 0;
  return tables;
}

}  // namespace deepfreeze
