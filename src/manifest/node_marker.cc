#include "manifest/node_marker.h"

#include <fmt/format.h>

#include "base/hex.h"
#include "base/random_id.h"
#include "base/try.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kNodeFailPoints = {"node.written", "node.renamed", "node.synced"};
constexpr std::uint64_t kNodeBytesMax = 64 * 1024;

std::string presence_name(std::uint64_t nonce) { return fmt::format("node.{}.tmp", hex64(nonce)); }

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

Result<NodeRecord> find_or_make_node(Vfs& vfs, const std::string& host) {
  auto found = read_node(vfs);
  const bool is_absent = !found && found.error().code() == ErrorCode::kNotFound;
  if (!found && !is_absent) return found;
  if (is_absent) {
    const NodeRecord made{.node = random_id(), .host = host};
    const Status placed = place_record(
        vfs, {.directory = "", .name = kNodeFile, .text = encode_node(made)}, kNodeFailPoints);
    const bool was_slower = !placed && placed.error().code() == ErrorCode::kExists;
    if (!placed && !was_slower) return std::unexpected(placed.error());
    found = was_slower ? read_node(vfs) : made;
    if (!found) return found;
  }
  // Its maker may have been cut off before its own sync, and a claim may soon name these digits.
  DF_TRY_VOID(settle_record(vfs, "", kNodeFailPoints));
  return found;
}

Status show_presence(Vfs& vfs, std::uint64_t nonce) {
  return write_new_file(vfs, presence_name(nonce), "");
}

Result<bool> sees_presence(Vfs& vfs, std::uint64_t nonce) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  return has_name(entries, presence_name(nonce));
}

Status hide_presence(Vfs& vfs, std::uint64_t nonce) {
  return vfs.remove_file(presence_name(nonce));
}

}  // namespace deepfreeze
