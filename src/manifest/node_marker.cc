#include "manifest/node_marker.h"

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kNodeBytesMax = 64 * 1024;

}  // namespace

Result<NodeRecord> read_node(Vfs& vfs) {
  DF_TRY(const std::string text, read_file(vfs, kNodeFile, kNodeBytesMax));
  auto record = decode_node(text);
  if (record) return record;
  return std::unexpected(record.error().within(vfs.path_of(kNodeFile)));
}

Result<std::optional<NodeMarker>> find_node_marker(Vfs& vfs) {
  auto record = read_node(vfs);
  if (record) return NodeMarker{.record = std::move(*record)};
  const ErrorCode code = record.error().code();
  if (code == ErrorCode::kNotFound) return std::nullopt;
  if (code == ErrorCode::kUnsupported) return std::unexpected(std::move(record).error());
  return NodeMarker{};
}

}  // namespace deepfreeze
