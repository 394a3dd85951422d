#include "manifest/scrub_memory.h"

#include <fmt/format.h>

#include "base/try.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

constexpr RecordFailPoints kScrubFailPoints = {"scrub.written", "scrub.renamed", "scrub.synced"};
constexpr std::uint64_t kScrubBytesMax = 4 << 20;  // of some 40,000 checkpoints
constexpr std::string_view kSealedBegin = R"({"crc32c":")";

}  // namespace

Result<ScrubRecord> recall_scrubs(Vfs& vfs, const std::string& run_id) {
  const ScrubRecord nothing{.run_id = run_id, .entries = {}};
  const auto text = read_file(vfs, kScrubFile, kScrubBytesMax);
  if (!text && text.error().code() == ErrorCode::kNotFound) return nothing;
  if (!text) return std::unexpected(text.error());
  if (!text->starts_with(kSealedBegin)) {
    return fail(ErrorCode::kMismatch,
                vfs.path_of(kScrubFile) + " is not ours: delete it by hand if nobody wants it");
  }
  auto record = decode_scrub(*text);
  if (!record && record.error().code() == ErrorCode::kUnsupported) {
    return std::unexpected(record.error().within(vfs.path_of(kScrubFile)));
  }
  return record && record->run_id == run_id ? std::move(*record) : nothing;
}

Status remember_scrubs(Vfs& vfs, const ScrubRecord& record) {
  const std::string text = encode_scrub(record);
  if (text.size() > kScrubBytesMax) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} checkpoints are more than {} takes", record.entries.size(),
                            vfs.path_of(kScrubFile)));
  }
  DF_TRY_VOID(replace_record(vfs, {.directory = "", .name = kScrubFile, .text = text},
                             kScrubFailPoints, [] { return Status(); }));
  return settle_record(vfs, "", kScrubFailPoints);
}

}  // namespace deepfreeze
