// The file: one page with Page, the facts as a sealed JSON text, the headers of the save's files
// with zeros for checksums, and, from "captured" on, the checksums of the image's blocks.
#include "save/handover.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>

#include "base/fail_point.h"
#include "base/try.h"
#include "format/members.h"
#include "format/sealed_json.h"
#include "json/json_writer.h"

namespace deepfreeze {
namespace {

constexpr std::array<char, 8> kMagic = {'D', 'F', 'H', 'A', 'N', 'D', '0', '1'};

struct Page {
  std::array<char, 8> magic;
  std::atomic<std::uint32_t> state;  // release: all that it speaks of was written before
  std::uint32_t unused;
  std::uint64_t facts_bytes;
  std::uint64_t crcs_at;
  std::uint64_t crcs;  // how many
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(Page) <= kMemoryPageBytes);

std::unexpected<Error> refuse(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("read what a trainer left: {}", why));
}

void write_section(JsonWriter& json, const Section& section) {
  json.object("begin", section.begin, "end", section.end);
}

std::string facts_of(const SavePlan& plan, std::chrono::milliseconds commit_wait_max) {
  std::vector<LeftFile> files;
  for (std::size_t i = 0; i < plan.file_count(); ++i) {
    files.push_back(
        {.header_bytes = plan.header_bytes[i], .section = plan.sections[i], .header = {}});
  }
  JsonWriter json;
  json.object("files",
              json_array(files,
                         [](JsonWriter& to, const LeftFile& file) {
                           to.object("header_bytes", file.header_bytes, "begin", file.section.begin,
                                     "end", file.section.end);
                         }),
              "audit",
              json_array(plan.audit_items(),
                         [](JsonWriter& to, const CaptureItem& item) {
                           to.object("offset", item.offset, "bytes", item.source.size());
                         }),
              "audit_sections", json_array(plan.audit_sections, write_section), "commit_wait_ms",
              static_cast<std::uint64_t>(commit_wait_max.count()));
  return seal_text(json.text());
}

// With zeros for all that is known only at the end.
Result<EncodedHeader> unfinished_header(const SavePlan& plan, std::size_t file) {
  const Identity identity = plan.identity_of(file);
  const HeaderParts parts = plan.header(file, identity);
  const std::vector<std::uint32_t> crcs(block_count(parts.table.data_bytes));
  const std::vector<ValueRange> ranges(parts.table.range_count.value_or(0));
  const std::vector<std::uint32_t> audit(parts.audit == nullptr ? 0 : parts.audit->count);
  const auto links = parts.link_count == 0 ? std::vector<LinkedFile>() : plan.no_links();
  return encode_header(parts,
                       {.block_crcs = crcs, .ranges = ranges, .audit_crcs = audit, .links = links});
}

template <class Read>
auto list_of(const JsonValue& facts, std::string_view name, const Read& read)
    -> Result<std::vector<typename decltype(read(facts))::value_type>> {
  std::vector<typename decltype(read(facts))::value_type> list;
  const JsonValue* found = facts.find(name);
  const JsonArray* array = found == nullptr ? nullptr : found->as_array();
  if (array == nullptr) return refuse(fmt::format("{} is missing", name));
  for (const JsonValue& one : *array) {
    DF_TRY(auto value, read(one));
    list.push_back(std::move(value));
  }
  return list;
}

Result<Section> section_of(const JsonValue& value) {
  Section section;
  DF_TRY(section.begin, get_u64(value, "begin"));
  DF_TRY(section.end, get_u64(value, "end"));
  if (section.end < section.begin) return refuse("a section ends before it begins");
  return section;
}

Result<LeftFile> file_of(const JsonValue& value) {
  LeftFile file;
  DF_TRY(file.header_bytes, get_u64(value, "header_bytes"));
  DF_TRY(file.section, section_of(value));
  return file;
}

Result<LeftAudit> audit_of(const JsonValue& value) {
  LeftAudit audit;
  DF_TRY(audit.offset, get_u64(value, "offset"));
  DF_TRY(audit.bytes, get_u64(value, "bytes"));
  return audit;
}

Result<LeftSave> left_by(const JsonValue& facts) {
  LeftSave left;
  DF_TRY(left.files, list_of(facts, "files", file_of));
  DF_TRY(left.audit, list_of(facts, "audit", audit_of));
  DF_TRY(left.audit_sections, list_of(facts, "audit_sections", section_of));
  DF_TRY(const std::uint64_t wait, get_u64(facts, "commit_wait_ms"));
  left.commit_wait_max = std::chrono::milliseconds(wait);
  if (left.files.empty()) return refuse("it names no file");
  return left;
}

Status read_headers(int fd, std::uint64_t at, LeftSave& left) {
  for (LeftFile& file : left.files) {
    if (file.header_bytes > kHeaderBytesMax + kPageBytes) return refuse("a header is too long");
    DF_TRY(const auto bytes, read_memory_file(fd, at, file.header_bytes));
    std::uint32_t crc = 0;
    DF_TRY(file.header, decode_header(bytes, file.header_bytes + file.section.size(), crc));
    at += file.header_bytes;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Handover>> Handover::make() {
  DF_TRY(auto file, MemoryFile::make());
  static_cast<Page*>(file->first_page())->magic = kMagic;
  return std::make_unique<Handover>(std::move(file));
}

void Handover::set(HandoverState state) const {
  static_cast<Page*>(file_->first_page())
      ->state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

void Handover::over() {
  is_planned_ = false;
  set(HandoverState::kNone);
}

Status Handover::plan(const SavePlan& plan, std::chrono::milliseconds commit_wait_max) {
  over();
  const std::string facts = facts_of(plan, commit_wait_max);
  std::uint64_t at = kPageBytes;
  DF_TRY_VOID(file_->write_at(at, std::as_bytes(std::span(facts))));
  at += facts.size();
  for (std::size_t file = 0; file < plan.file_count(); ++file) {
    DF_TRY(const EncodedHeader header, unfinished_header(plan, file));
    DF_TRY_VOID(file_->write_at(at, header.bytes));
    at += header.bytes.size();
  }
  auto& page = *static_cast<Page*>(file_->first_page());
  page.facts_bytes = facts.size();
  page.crcs_at = crcs_at_ = at;
  page.crcs = 0;
  DF_FAIL_POINT("handover.written");
  is_planned_ = true;
  set(HandoverState::kPlanned);
  DF_FAIL_POINT("handover.planned");
  return {};
}

Status Handover::captured(std::span<const std::uint32_t> block_crcs) {
  if (!is_planned_) return {};
  const Status written = file_->write_at(crcs_at_, std::as_bytes(block_crcs));
  if (!written) {
    over();
    return written;
  }
  static_cast<Page*>(file_->first_page())->crcs = block_crcs.size();
  DF_FAIL_POINT("handover.checksums_written");
  set(HandoverState::kCaptured);
  DF_FAIL_POINT("handover.captured");
  return {};
}

Result<LeftSave> read_handover(int fd) {
  DF_TRY(const auto first, read_memory_file(fd, 0, kPageBytes));
  Page page{.magic = {}, .state = 0, .unused = 0, .facts_bytes = 0, .crcs_at = 0, .crcs = 0};
  const auto field = [&](std::size_t at, auto& into) {
    std::memcpy(&into, first.data() + at, sizeof(into));
  };
  std::uint32_t state = 0;
  field(offsetof(Page, magic), page.magic);
  field(offsetof(Page, state), state);
  field(offsetof(Page, facts_bytes), page.facts_bytes);
  field(offsetof(Page, crcs_at), page.crcs_at);
  field(offsetof(Page, crcs), page.crcs);
  if (page.magic != kMagic || state > static_cast<std::uint32_t>(HandoverState::kCaptured)) {
    return fail(ErrorCode::kUnsupported, "read what a trainer left: it is of another version");
  }
  if (state == static_cast<std::uint32_t>(HandoverState::kNone)) return LeftSave{};
  DF_TRY(const auto facts, read_memory_file(fd, kPageBytes, page.facts_bytes));
  DF_TRY(const JsonValue parsed,
         parse_sealed({reinterpret_cast<const char*>(facts.data()), facts.size()}));
  DF_TRY(LeftSave left, left_by(parsed));
  left.state = static_cast<HandoverState>(state);
  DF_TRY_VOID(read_headers(fd, kPageBytes + page.facts_bytes, left));
  if (left.state == HandoverState::kPlanned) return left;
  constexpr std::uint64_t kCrcsMax =
      std::numeric_limits<std::uint64_t>::max() / sizeof(std::uint32_t);
  if (page.crcs > kCrcsMax) return refuse("too many checksums");
  DF_TRY(const auto crcs, read_memory_file(fd, page.crcs_at, page.crcs * sizeof(std::uint32_t)));
  left.block_crcs.resize(page.crcs);
  std::memcpy(left.block_crcs.data(), crcs.data(), crcs.size());
  return left;
}

}  // namespace deepfreeze
