// Whether a store can be a tier, found out by an object that nobody reads.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/hex.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/scope_exit.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "object/object_tier.h"
#include "object/s3_text.h"

namespace deepfreeze {
namespace {

using ProbeBytes = std::array<std::byte, 16>;

ProbeBytes random_probe() {
  const std::array<std::uint64_t, 2> numbers = {random_id(), random_id()};
  ProbeBytes bytes;
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Other bytes, so that a store which replaces them shows, and a lost answer is not taken for it.
Result<bool> is_refused_twice(S3Client& client, const std::string& key) {
  const ProbeBytes others = random_probe();
  const Status put = client.put(key, others, crc32c(others), IfPresent::kRefuse);
  if (put) return false;
  if (put.error().code() == ErrorCode::kExists) return true;
  if (put.error().code() == ErrorCode::kUnsupported) return false;
  return std::unexpected(put.error());
}

Status check_read_back(S3Client& client, const std::string& key, const ProbeBytes& wanted) {
  ProbeBytes found{};
  DF_TRY(const std::size_t count, client.get(key, 0, found));
  if (count == found.size() && found == wanted) return {};
  return fail(ErrorCode::kCorrupt,
              fmt::format("{}/{}: the store does not give back the bytes that it was given",
                          client.place().url(), key));
}

Result<ObjectProbe> probe_with(S3Client& client, const std::string& key) {
  const ProbeBytes bytes = random_probe();
  const std::uint32_t crc = crc32c(bytes);
  ObjectProbe found;
  DF_TRY_VOID(client.put(key, bytes, crc, IfPresent::kRefuse));
  DF_TRY(const ObjectInfo info, client.head(key));
  found.keeps_checksums = info.crc32c == crc;
  DF_TRY_VOID(check_read_back(client, key, bytes));
  DF_TRY(found.has_conditional_writes, is_refused_twice(client, key));
  return found;
}

// Only uploads of data files: others below the prefix may be another program's.
void abort_stale_uploads(S3Client& client, std::string_view prefix) {
  const auto uploads = client.open_uploads(prefix);
  if (!uploads) {
    log_warning("uploads that were left open can't be looked for: " + uploads.error().message());
    return;
  }
  for (const OpenUpload& upload : *uploads) {
    const auto initiated = parse_iso_time(upload.initiated);
    if (!initiated || client.now() - *initiated <= kStaleUpload) continue;
    const Status aborted = client.abort(upload.key, upload.upload_id);
    if (!aborted) log_warning("an upload that was left open stays: " + aborted.error().message());
  }
}

}  // namespace

Result<ObjectProbe> probe(S3Client& client, bool read_only) {
  DF_TRY_VOID(client.list("", true));
  if (read_only) return ObjectProbe{};
  const std::string key = fmt::format("probe.{}.tmp", hex64(random_id()));
  auto found = probe_with(client, key);
  const Status removed = client.remove(key);
  if (found && !removed) return std::unexpected(removed.error());
  if (!found) return found;
  abort_stale_uploads(client, "step-");
  abort_stale_uploads(client, "shared/step-");
  return found;
}

}  // namespace deepfreeze
