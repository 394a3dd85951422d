#include "format/header_parts.h"

#include <fmt/format.h>

#include <array>
#include <unordered_set>
#include <utility>

#include "base/try.h"
#include "format/header_text.h"
#include "format/json_writer.h"
#include "format/state_tree.h"
#include "tensor/utf8.h"

namespace deepfreeze {
namespace {

Status check_unique(const std::vector<ShardEntry>& entries) {
  std::unordered_set<std::string_view> keys;
  keys.reserve(entries.size());
  for (const ShardEntry& entry : entries) {
    if (!keys.insert(entry.spec.key).second) {
      return refuse_header(fmt::format("tensor \"{}\": its key is used twice", entry.spec.key));
    }
  }
  return {};
}

// What safetensors has no place for; nothing for most tensors.
void append_extra(fmt::memory_buffer& out, const TensorSpec& spec) {
  if (spec.logical_dtype.empty() && !spec.box) return;
  out.push_back(out.size() == 0 ? '{' : ',');
  append_json_string(out, spec.key);
  out.push_back(':');
  const std::size_t begin = out.size();
  if (!spec.logical_dtype.empty()) {
    append_text(out, ",\"logical_dtype\":");
    append_json_string(out, spec.logical_dtype);
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

std::string extras_of(const std::vector<ShardEntry>& entries) {
  fmt::memory_buffer extras;
  for (const ShardEntry& entry : entries) append_extra(extras, entry.spec);
  if (extras.size() == 0) return {};
  extras.push_back('}');
  fmt::memory_buffer out;
  append_metadata_member(out, kTensorsKey, {extras.data(), extras.size()});
  return fmt::to_string(out);
}

void append_entry(fmt::memory_buffer& out, const ShardEntry& entry) {
  out.push_back(',');
  append_json_string(out, entry.spec.key);
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

}  // namespace

Result<TableText> write_table(std::vector<ShardEntry> entries, std::uint64_t data_bytes) {
  DF_TRY_VOID(check_entries(entries, data_bytes));
  DF_TRY_VOID(check_unique(entries));
  TableText table{.entries = {},
                  .data_bytes = data_bytes,
                  .members = members_of(entries),
                  .extras = extras_of(entries)};
  table.entries = std::move(entries);
  return table;
}

Result<TreeText> write_tree(std::string tree) {
  if (tree.size() > kTreeBytesMax) return refuse_header("the state tree is too large");
  if (!is_utf8(tree)) return refuse_header("the state tree is not UTF-8");
  fmt::memory_buffer out;
  if (!tree.empty()) append_metadata_member(out, kTreeKey, tree);
  return TreeText{.tree = std::move(tree), .member = fmt::to_string(out)};
}

}  // namespace deepfreeze
