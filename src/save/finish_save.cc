#include "save/finish_save.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/polling.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/layout.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"
#include "manifest/several_ranks.h"
#include "save/audit_scan.h"
#include "save/range_scan.h"

namespace deepfreeze {
namespace {

// The image of a save that another process has captured, and the headers of its files.
class LeftPart {
 public:
  [[nodiscard]] static Result<LeftPart> open(const LeftSave& left, std::span<std::byte> arena);

  [[nodiscard]] Status check_blocks() const;
  [[nodiscard]] Status write(Vfs& vfs, WriteEngine& write_engine);

 private:
  LeftPart(const LeftSave& left, SavePlan plan, Image image)
      : left_(left), plan_(std::move(plan)), image_(std::move(image)) {}
  [[nodiscard]] Result<std::vector<std::byte>> header(std::size_t file, const RangeScan* ranges,
                                                      const AuditScan& audit) const;

  const LeftSave& left_;
  SavePlan plan_;
  Image image_;
};

Error damaged(std::string_view what) {
  return {ErrorCode::kCorrupt,
          fmt::format("finish a save: {} is not what its trainer captured", what)};
}

// The parts of a plan that the scans need.
Result<SavePlan> plan_of(const LeftSave& left) {
  SavePlan plan;
  TablePlan table;
  for (const LeftFile& file : left.files) {
    const ShardHeader& header = file.header;
    if (header.data_bytes != file.section.size()) return std::unexpected(damaged("a header"));
    DF_TRY(TableText text,
           write_table(header.entries, header.data_bytes, header.ranges.has_value()));
    table.files.push_back(std::move(text));
    plan.sections.push_back(file.section);
    plan.header_bytes.push_back(file.header_bytes);
  }
  plan.table = std::make_shared<const TablePlan>(std::move(table));
  plan.audit = left.files.front().header.audit;
  plan.audit_sections = left.audit_sections;
  plan.identity = left.files.front().header.identity;
  return plan;
}

// Sections in their order, each from a slab on.
bool are_in_order(std::span<const Section> sections) {
  std::uint64_t end = 0;
  for (const Section& section : sections) {
    const bool is_empty = section.size() == 0;
    if (section.begin < end || (!is_empty && section.begin % kSlabBytes != 0)) return false;
    end = section.end;
  }
  return true;
}

Result<LeftPart> LeftPart::open(const LeftSave& left, std::span<std::byte> arena) {
  DF_TRY(SavePlan plan, plan_of(left));
  const std::vector<Section> sections = plan.image_sections();
  if (!are_in_order(sections) || sections.back().end > arena.size() ||
      left.audit.size() != plan.audit.size()) {
    return std::unexpected(damaged("the layout of its image"));
  }
  Image image(arena, sections, kSlabBytes);
  for (const LeftAudit& copy : left.audit) {
    if (copy.offset > arena.size() || copy.bytes > arena.size() - copy.offset) {
      return std::unexpected(damaged("the layout of its copies"));
    }
    plan.items.push_back({.source = image.at(copy.offset, copy.bytes), .offset = copy.offset});
  }
  if (left.block_crcs.size() < ceil_div(image.end(), kBlockBytes)) {
    return std::unexpected(damaged("the list of checksums"));
  }
  return LeftPart(left, std::move(plan), std::move(image));
}

Status LeftPart::check_blocks() const {
  for (const Section& section : plan_.image_sections()) {
    for (std::uint64_t at = section.begin; at < section.end; at += kBlockBytes) {
      const std::uint64_t bytes = std::min<std::uint64_t>(kBlockBytes, section.end - at);
      if (crc32c(image_.at(at, bytes)) == left_.block_crcs[at / kBlockBytes]) continue;
      return std::unexpected(damaged(fmt::format("block {} of the memory", at / kBlockBytes)));
    }
  }
  return {};
}

Status LeftPart::write(Vfs& vfs, WriteEngine& write_engine) {
  PartSpec spec{.files = plan_.file_specs(),
                .image = image_.first(plan_.file_count()),
                .on_slab_free = [](std::size_t) {}};
  for (const FileSpec& file : spec.files) {  // of the trainer: it may have ended anywhere in them
    const Status removed = vfs.remove_file(file.name);
    if (!removed && removed.error().code() != ErrorCode::kNotFound) return removed;
  }
  std::optional<RangeScan> ranges;
  if (plan_.has_ranges()) ranges.emplace(*plan_.table, image_);
  AuditScan audit(plan_, image_);
  DF_TRY(const auto writer, write_engine.start(vfs, std::move(spec)));
  for (std::size_t slab = 0; slab < image_.slab_count(); ++slab) {
    if (audit.has(slab)) {
      audit.take(slab);
      continue;
    }
    if (ranges) ranges->take(slab);
    writer->push(slab);
  }
  return writer->finish(
      [&](std::size_t file) { return header(file, ranges ? &*ranges : nullptr, audit); });
}

Result<std::vector<std::byte>> LeftPart::header(std::size_t file, const RangeScan* ranges,
                                                const AuditScan& audit) const {
  ShardHeader whole = left_.files[file].header;
  const auto crcs = plan_.block_crcs_of(file, left_.block_crcs);
  whole.block_crcs.assign(crcs.begin(), crcs.end());
  if (ranges != nullptr) whole.ranges = ranges->ranges_of(file);
  for (std::size_t i = 0; i < whole.audit.size(); ++i) whole.audit[i].crc = audit.crcs()[i];
  DF_TRY(EncodedHeader encoded, encode_header(whole));
  if (encoded.bytes.size() != plan_.header_bytes[file]) {
    return std::unexpected(damaged("the size of a header"));
  }
  return std::move(encoded.bytes);
}

// The files of the part that do not have their final names.
Result<std::vector<PartName>> not_sealed(Vfs& vfs, const LeftSave& left) {
  const Identity& identity = left.files.front().header.identity;
  std::vector<PartName> names(left.files.size(), identity.part);
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i].file = static_cast<std::uint32_t>(i);
    names[i].file_count = static_cast<std::uint32_t>(names.size());
  }
  const auto entries = vfs.list(attempt_dir_name(attempt_of(identity)));
  if (!entries) {
    if (entries.error().code() == ErrorCode::kNotFound) return names;
    return std::unexpected(entries.error());
  }
  std::erase_if(names,
                [&](const PartName& part) { return has_name(*entries, sealed_file_name(part)); });
  return names;
}

// The first sealed file was renamed when all of them were written and synced. From then on the
// memory may be another save's.
Status write_and_seal(Vfs& vfs, const LeftSave& left, std::span<std::byte> arena,
                      WriteEngine& write_engine) {
  const Identity& identity = left.files.front().header.identity;
  DF_TRY(const auto missing, not_sealed(vfs, left));
  if (missing.size() == left.files.size()) {
    DF_TRY(LeftPart part, LeftPart::open(left, arena));
    DF_TRY_VOID(part.check_blocks());
    DF_TRY_VOID(join_attempt(vfs, attempt_of(identity)));
    DF_TRY_VOID(part.write(vfs, write_engine));
  }
  return seal_parts(vfs, attempt_of(identity), missing);
}

// Returns when all parts are there, or a rank has failed, or none is to be waited for any more.
void await_parts(Vfs& vfs, const CommitRequest& request, std::chrono::milliseconds deadline,
                 const Others& others) {
  std::string seen;
  auto changed = Monotonic::now();
  Polling polling(deadline);
  do {
    if (present_parts(vfs, request) || reported_failure(vfs, attempt_of(request.identity))) return;
    if (std::string now = attempt_progress(vfs, attempt_of(request.identity)); now != seen) {
      seen = std::move(now);
      changed = Monotonic::now();
    }
    if (others.wait() && Monotonic::now() - changed >= others.quiet_max) return;
  } while (polling.again());
}

// Only the leader of a node goes on from here; without its link the next claim decides.
Result<LeftOutcome> commit_with_nodes(const Identity& identity, const Others& others) {
  if (!others.commit_node) return LeftOutcome::kSealed;
  const auto committed = others.commit_node(identity, {});
  if (!committed) return std::unexpected(committed.error());
  return LeftOutcome::kCommitted;
}

Result<LeftOutcome> commit(Vfs& vfs, const LeftSave& left, const Others& others) {
  const Identity& identity = left.files.front().header.identity;
  if (others.is_on_nodes) return commit_with_nodes(identity, others);
  if (identity.part.rank != 0) return LeftOutcome::kSealed;
  const CommitRequest request = {.identity = identity,
                                 .world_size = identity.part.world_size,
                                 .deadline = std::chrono::milliseconds(0),
                                 .own = {}};
  await_parts(vfs, request, left.commit_wait_max, others);
  const auto committed = commit_attempt(vfs, request);
  if (!committed) return std::unexpected(committed.error());
  return LeftOutcome::kCommitted;
}

// The others need not wait for a part that will not come.
void give_up(Vfs& vfs, const Identity& identity, const Error& why, const Others& others) {
  if (identity.part.world_size == 1) {
    std::ignore = remove_attempt(vfs, attempt_of(identity));
    return;
  }
  const bool has_joined = vfs.list(attempt_dir_name(attempt_of(identity))).has_value();
  if (has_joined) {
    std::ignore = withdraw(vfs, identity, why);
  } else {
    withdraw_unjoined(vfs, identity, why);
  }
  if (others.commit_node) std::ignore = others.commit_node(identity, why);
}

// An attempt that has an outcome is over.
Result<std::optional<LeftOutcome>> decided(Vfs& vfs, const Identity& identity) {
  const auto manifest = read_manifest(vfs, attempt_of(identity), identity.run_id);
  if (!manifest) {
    if (manifest.error().code() == ErrorCode::kNotFound) return std::nullopt;
    return std::unexpected(manifest.error());
  }
  // Its name may not be durable yet.
  if (manifest->outcome == Outcome::kCommitted) {
    DF_TRY_VOID(vfs.sync_dir(attempt_dir_name(attempt_of(identity))));
    return LeftOutcome::kCommitted;
  }
  return LeftOutcome::kDropped;
}

}  // namespace

std::string_view to_string(LeftOutcome outcome) {
  switch (outcome) {
    case LeftOutcome::kNothing:
      return "nothing was left";
    case LeftOutcome::kDropped:
      return "dropped";
    case LeftOutcome::kSealed:
      return "sealed";
    case LeftOutcome::kCommitted:
      return "committed";
  }
  return "";
}

Result<LeftOutcome> finish_left_save(Vfs& vfs, const LeftSave& left, std::span<std::byte> arena,
                                     WriteEngine& write_engine, const Others& others) {
  if (left.state == HandoverState::kNone) return LeftOutcome::kNothing;
  const Identity& identity = left.files.front().header.identity;
  DF_TRY(const auto outcome, decided(vfs, identity));
  if (outcome) return *outcome;
  DF_TRY_VOID(check_not_fenced(vfs, identity.generation));
  if (left.state == HandoverState::kPlanned) {
    give_up(vfs, identity, {ErrorCode::kCancelled, "its process ended before all was captured"},
            others);
    return LeftOutcome::kDropped;
  }
  const Status sealed = write_and_seal(vfs, left, arena, write_engine);
  if (!sealed) {
    give_up(vfs, identity, sealed.error(), others);
    return std::unexpected(
        sealed.error().within(fmt::format("finish the save of step {}", identity.step)));
  }
  return commit(vfs, left, others);
}

}  // namespace deepfreeze
