#include "manifest/scrub_memory.h"

#include "base/try.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kFailPoints = {"scrub.written", "scrub.renamed", "scrub.synced"};
constexpr std::uint64_t kScrubBytesMax = 64 << 20;

}  // namespace

Result<ScrubRecord> recall_scrubs(Vfs& vfs, const std::string& run_id) {
  const ScrubRecord nothing{.run_id = run_id, .entries = {}};
  const auto text = read_file(vfs, kScrubFile, kScrubBytesMax);
  if (!text) return nothing;
  auto record = decode_scrub(*text);
  if (!record && record.error().code() == ErrorCode::kUnsupported) {
    return std::unexpected(record.error().within(vfs.path_of(kScrubFile)));
  }
  return record && record->run_id == run_id ? std::move(*record) : nothing;
}

Status remember_scrubs(Vfs& vfs, const ScrubRecord& record) {
  const std::string text = encode_scrub(record);
  DF_TRY_VOID(replace_record(vfs, {.directory = "", .name = kScrubFile, .text = text}, kFailPoints,
                             [] { return Status(); }));
  return settle_record(vfs, "", kFailPoints);
}

}  // namespace deepfreeze
