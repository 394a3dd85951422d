#include "format/node_record.h"

#include "base/hex.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/json_parts.h"
#include "format/members.h"

namespace deepfreeze {
namespace {

Result<NodeRecord> node_of(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "node"));
  NodeRecord record;
  DF_TRY(record.node, get_hex64(object, "node"));
  DF_TRY(record.host, get_string(object, "host"));
  return record;
}

}  // namespace

std::string encode_node(const NodeRecord& record) {
  JsonWriter json;
  json.begin_object();
  json.members("kind", "node", "format_version", kPlainFormatVersion, "node", hex64(record.node),
               "host", record.host);
  return sealed(std::move(json));
}

Result<NodeRecord> decode_node(std::string_view text) {
  auto record = node_of(text);
  if (record) return record;
  return std::unexpected(record.error().within("node record"));
}

}  // namespace deepfreeze
