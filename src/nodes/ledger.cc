#include "nodes/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze {
namespace {

Result<SealedPart> decoded_part(const JobNodes& nodes, std::uint32_t sender, const LinkPart& part) {
  const auto name = parse_sealed_file_name(part.file);
  if (!name || name->world_size != nodes.world_size() || nodes.leader_of(name->rank) != sender) {
    return fail(ErrorCode::kMismatch, fmt::format("{} is no file of this node", part.file));
  }
  return sealed_part(*name, std::as_bytes(std::span(part.header)), part.bytes);
}

Error of_node(std::uint32_t leader, const Error& error) {
  return error.within(fmt::format("the node of rank {}", leader));
}

}  // namespace

Result<SealedPart> sealed_part(const PartName& name, std::span<const std::byte> bytes,
                               std::uint64_t file_bytes) {
  DF_TRY(PartHeader header, decode_part_header(bytes, file_bytes));
  header.header.tree = {};
  header.header.block_crcs = {};
  return SealedPart{.name = name, .header = std::move(header)};
}

Ledger::Ledger(JobNodes nodes, std::uint32_t own, std::size_t report_bytes_max)
    : nodes_(std::move(nodes)), own_(own), report_bytes_max_(report_bytes_max) {}

void Ledger::begin(const LinkAttempt& attempt) {
  const std::lock_guard lock(mutex_);
  std::erase(over_, attempt);
  if (Entry* entry = open(attempt)) entry->state = State::kUnderWay;
}

void Ledger::end(const LinkAttempt& attempt) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.attempt == attempt; });
  if (is_over(attempt)) return;
  over_.push_back(attempt);
  if (over_.size() > kOverAttemptsMax) over_.pop_front();
}

void Ledger::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  std::erase_if(entries_, [](const Entry& entry) { return entry.state == State::kEarly; });
}

bool Ledger::is_open(const LinkAttempt& attempt) const {
  const std::lock_guard lock(mutex_);
  return find(attempt) != nullptr;
}

bool Ledger::note(Letter letter) {
  if (letter.rank == own_ || !nodes_.is_leader(letter.rank)) return false;
  if (!letter.message) {
    const std::lock_guard lock(mutex_);
    ++renewals_[letter.rank];
    return false;
  }
  if (own_ == 0) return note_to_rank_0(letter.rank, *std::move(letter.message));
  if (letter.rank == 0) note_answer(*std::move(letter.message));
  return false;
}

bool Ledger::note_to_rank_0(std::uint32_t sender, LinkMessage message) {
  if (std::holds_alternative<LinkAsk>(message)) return true;
  if (const auto* part = std::get_if<LinkPart>(&message)) return note_part(sender, *part);
  const std::lock_guard lock(mutex_);
  if (auto* sealed = std::get_if<LinkSealed>(&message)) {
    Entry* entry = open(sealed->attempt);
    if (entry == nullptr) return true;
    entry->reports[sender].sealed = std::move(sealed->files);
    judge(*entry, sender);
  } else if (const auto* failed = std::get_if<LinkFailed>(&message)) {
    Entry* entry = open(failed->attempt);
    if (entry == nullptr) return true;
    if (!entry->failure) entry->failure = of_node(sender, failed->error);
  }
  return false;
}

bool Ledger::note_part(std::uint32_t sender, const LinkPart& part) {
  auto decoded = decoded_part(nodes_, sender, part);  // first: it takes a while
  const std::lock_guard lock(mutex_);
  Entry* entry = open(part.attempt);
  if (entry == nullptr) return false;  // its `sealed` comes behind it
  std::size_t bytes = part.header.size();
  for (const Entry& any : entries_) bytes += any.report_bytes;
  if (decoded && bytes > report_bytes_max_) {
    decoded = fail(ErrorCode::kUnsupported,
                   fmt::format("the nodes' headers have more than {} bytes", report_bytes_max_));
  }
  if (!decoded) {
    if (!entry->failure) entry->failure = of_node(sender, decoded.error());
    return false;
  }
  const bool is_new =
      entry->reports[sender].parts.insert_or_assign(part.file, *std::move(decoded)).second;
  if (is_new) entry->report_bytes += part.header.size();
  judge(*entry, sender);
  return false;
}

// Whether the node's report is whole: `sealed` names all its files, and their headers are here.
void Ledger::judge(Entry& entry, std::uint32_t sender) const {
  NodeReport& report = entry.reports[sender];
  if (!report.sealed || report.sealed->size() != report.parts.size()) return;
  std::vector<PartName> names;
  for (const LinkSealed::File& file : *report.sealed) {
    const auto part = report.parts.find(file.name);
    if (part == report.parts.end() || part->second.header.crc != file.header_crc) return;
    names.push_back(part->second.name);
  }
  std::ranges::sort(names, {},
                    [](const PartName& name) { return std::pair(name.rank, name.file); });
  const Status complete = check_complete(names, nodes_.ranks_with(sender), nodes_.world_size());
  report.is_complete = complete.has_value();
  if (!complete && !entry.failure) entry.failure = of_node(sender, complete.error());
}

void Ledger::note_answer(LinkMessage message) {
  const std::lock_guard lock(mutex_);
  if (auto* decided = std::get_if<LinkDecided>(&message)) {
    Entry* entry = open(decided->attempt);
    if (entry != nullptr && !entry->answer.decided) {
      entry->answer.decided = std::move(decided->manifest);
    }
  } else if (const auto* gone = std::get_if<LinkGone>(&message)) {
    if (Entry* entry = open(gone->attempt)) entry->answer.is_gone = true;
  }
}

std::uint64_t Ledger::renewals(std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = renewals_.find(rank);
  return found == renewals_.end() ? 0 : found->second;
}

std::optional<Error> Ledger::failure(const LinkAttempt& attempt) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(attempt);
  return entry == nullptr ? std::nullopt : entry->failure;
}

std::optional<std::uint32_t> Ledger::awaited(const LinkAttempt& attempt) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(attempt);
  for (const std::uint32_t leader : nodes_.leaders()) {
    if (leader == own_) continue;
    if (entry == nullptr) return leader;
    const auto report = entry->reports.find(leader);
    if (report == entry->reports.end() || !report->second.is_complete) return leader;
  }
  return std::nullopt;
}

std::vector<SealedPart> Ledger::take_parts(const LinkAttempt& attempt) {
  const std::lock_guard lock(mutex_);
  std::vector<SealedPart> parts;
  Entry* entry = find(attempt);
  if (entry == nullptr) return parts;
  for (auto& [leader, report] : entry->reports) {
    for (auto& [name, part] : report.parts) parts.push_back(std::move(part));
  }
  return parts;
}

void Ledger::set_report(const LinkAttempt& attempt, OwnReport report) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(attempt)) entry->own = std::move(report);
}

OwnReport Ledger::report(const LinkAttempt& attempt) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(attempt);
  return entry == nullptr ? OwnReport() : entry->own;
}

NodeAnswer Ledger::answer(const LinkAttempt& attempt) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(attempt);
  return entry == nullptr ? NodeAnswer() : entry->answer;
}

void Ledger::drop_answer(const LinkAttempt& attempt) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(attempt)) entry->answer = {};
}

void Ledger::doubt(const LinkAttempt& attempt) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(attempt);
  if (entry == nullptr) return;
  entry->state = State::kInDoubt;
  keep_bounds(State::kInDoubt, kDoubtsMax);
}

std::vector<LinkAttempt> Ledger::doubts() const {
  const std::lock_guard lock(mutex_);
  std::vector<LinkAttempt> doubts;
  for (const Entry& entry : entries_) {
    if (entry.state == State::kInDoubt) doubts.push_back(entry.attempt);
  }
  return doubts;
}

const Ledger::Entry* Ledger::find(const LinkAttempt& attempt) const {
  const auto found = std::ranges::find(entries_, attempt, &Entry::attempt);
  return found == entries_.end() ? nullptr : &*found;
}

Ledger::Entry* Ledger::find(const LinkAttempt& attempt) {
  const auto found = std::ranges::find(entries_, attempt, &Entry::attempt);
  return found == entries_.end() ? nullptr : &*found;
}

bool Ledger::is_over(const LinkAttempt& attempt) const {
  return std::ranges::find(over_, attempt) != over_.end();
}

Ledger::Entry* Ledger::open(const LinkAttempt& attempt) {
  if (is_over(attempt)) return nullptr;
  if (Entry* entry = find(attempt)) return entry;
  if (is_closed_) return nullptr;
  entries_.push_back({.attempt = attempt});
  keep_bounds(State::kEarly, kEarlyAttemptsMax);
  return find(attempt);
}

void Ledger::keep_bounds(State state, std::size_t count_max) {
  const auto is_of = [state](const Entry& entry) { return entry.state == state; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(entries_, is_of));
  if (count > count_max) entries_.erase(std::ranges::find_if(entries_, is_of));
}

}  // namespace deepfreeze
