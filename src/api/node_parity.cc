#include "api/node_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/trace.h"
#include "base/try.h"
#include "format/names.h"
#include "manifest/history.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kDrainLook{100};

// The files of the manifest that these ranks have written.
std::vector<ManifestFile> files_of_ranks(const Manifest& manifest,
                                         const std::vector<std::uint32_t>& ranks) {
  std::vector<ManifestFile> files;
  for (const ManifestFile& file : manifest.files) {
    const auto part = parse_sealed_file_name(file.name);
    if (part && std::ranges::find(ranks, part->rank) != ranks.end()) files.push_back(file);
  }
  return files;
}

std::string mark_of(const AttemptName& name) {
  return fmt::format("{}/{}", attempt_dir_name(name), kProtectedFile);
}

LinkProtected message_of(const AttemptName& name, ParityStage stage) {
  return {.attempt = {.step = name.step, .attempt_id = name.attempt_id}, .stage = stage};
}

void give_up(std::span<const std::shared_ptr<SaveHandle::State>> handles) {
  for (const auto& handle : handles) {
    if (handle) handle->give_up_protection("a newer checkpoint came first");
  }
}

}  // namespace

Result<std::unique_ptr<NodeParity>> NodeParity::start(Settings settings) {
  auto parity = std::make_unique<NodeParity>(std::move(settings));
  parity->thread_ = start_threads(1, "df-parity", [own = parity.get()] { own->work(); });
  if (!parity->thread_.empty()) return parity;
  return fail(ErrorCode::kNoSpace, "protect: the system refuses a thread");
}

NodeParity::NodeParity(Settings settings)
    : settings_(std::move(settings)), rate_(settings_.parity.bytes_per_second) {}

NodeParity::Entry* NodeParity::find(const AttemptName& name) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

// With the lock held.
void NodeParity::wake() {
  ++wakes_;
  changed_.notify_all();
}

void NodeParity::expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle) {
  handle->meant_to_be_protected();
  const std::lock_guard lock(mutex_);
  entries_.push_back({.name = name, .number = ++last_number_, .handle = handle});
}

void NodeParity::forget(const AttemptName& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

void NodeParity::committed(const AttemptName& name) {
  std::vector<std::shared_ptr<SaveHandle::State>> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (Entry* const entry = find(name)) entry->is_committed = true;
    const auto is_idle = [&](const Entry& entry) {
      return entry.others() == 0 && !entry.is_written && entry.name != in_work_;
    };
    while (entries_.size() > kUnprotectedMax) {
      const auto oldest = std::ranges::find_if(entries_, is_idle);
      if (oldest == entries_.end()) break;
      dropped.push_back(oldest->handle.lock());
      entries_.erase(oldest);
    }
    pause_ = kParityPauseMin;
    wake();
  }
  give_up(dropped);
}

std::vector<AttemptName> NodeParity::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<AttemptName> names;
  if (in_work_) names.push_back(*in_work_);
  for (const Entry& entry : entries_) {
    if (entry.others() > 0 || entry.is_written) names.push_back(entry.name);
  }
  return names;
}

void NodeParity::take(std::uint32_t rank, LinkMessage message) {
  const auto* told = std::get_if<LinkProtected>(&message);
  if (told == nullptr) return;
  const AttemptName name{told->attempt.step, told->attempt.attempt_id};
  std::unique_lock lock(mutex_);
  Entry* const entry = find(name);
  if (entry == nullptr) {
    const bool missed_it = protected_ == name && told->stage != ParityStage::kAll;
    lock.unlock();
    if (missed_it) (void)settings_.send(rank, message_of(name, ParityStage::kAll));
    return;
  }
  switch (told->stage) {
    case ParityStage::kBegun:
      entry->begun.insert(rank);
      break;
    case ParityStage::kWritten:
      entry->written.insert(rank);
      break;
    case ParityStage::kGroup:
      entry->groups.insert(rank);
      break;
    case ParityStage::kAll:
      entry->is_protected = true;
      break;
  }
  wake();
}

void NodeParity::note(const LinkState& state) {
  const std::lock_guard lock(mutex_);
  if (state.is_up) {
    lost_.erase(state.rank);
  } else {
    lost_.emplace(state.rank, Monotonic::now());
  }
  wake();
}

// A message that can't be sent now, or is lost, is sent again: tell_again().
void NodeParity::tell_group(const AttemptName& name, ParityStage stage) const {
  for (std::size_t member = 0; member < settings_.group.size(); ++member) {
    if (member == settings_.own) continue;
    (void)settings_.send(leader_of(member), message_of(name, stage));
  }
}

void NodeParity::tell_all(const AttemptName& name) const {
  for (const std::uint32_t leader : settings_.leaders) {
    if (leader == own_leader()) continue;
    (void)settings_.send(leader, message_of(name, ParityStage::kAll));
  }
}

void NodeParity::work() {
  step_aside();
  while (!stop_.load(std::memory_order_relaxed)) {
    std::uint64_t wakes = 0;
    {
      const std::lock_guard lock(mutex_);
      wakes = wakes_;
    }
    bool did_something = false;
    try {
      did_something = step();
    } catch (const std::exception& cause) {  // memory is refused: it is tried again
      log_warning(fmt::format("protect: {}", cause.what()));
    }
    if (!did_something) pause(wakes);
  }
}

// Until there is something new since `wakes` was read, and for a while if something is unsettled.
void NodeParity::pause(std::uint64_t wakes) {
  {
    std::unique_lock lock(mutex_);
    const auto is_woken = [&] { return wakes_ != wakes; };
    if (std::ranges::none_of(entries_, &Entry::is_committed)) return changed_.wait(lock, is_woken);
    if (changed_.wait_for(lock, pause_, is_woken)) return;
    pause_ = std::min(2 * pause_, kParityPauseMax);
  }
  if (settings_.leads) tell_again();
}

// One piece of work. False: there is none, or it failed.
bool NodeParity::step() {
  if (settings_.leads) tell_stages();
  if (const auto name = settings_.leads ? to_settle() : marked()) {
    settle(*name);
    return true;
  }
  const auto name = to_write();
  return name && try_write(*name);
}

// The newest that all groups have.
std::optional<AttemptName> NodeParity::to_settle() {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(entries_.rbegin(), entries_.rend(), true, &Entry::is_protected);
  if (found == entries_.rend()) return std::nullopt;
  return found->name;
}

// For a rank that does not lead: the newest that its leader has marked, if somebody waits for one.
std::optional<AttemptName> NodeParity::marked() {
  std::vector<AttemptName> names;                        // newest first
  std::vector<std::shared_ptr<SaveHandle::State>> held;  // whose end must not come under the lock
  bool is_wanted = false;
  {
    const std::lock_guard lock(mutex_);
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (!entry->is_committed) continue;
      names.push_back(entry->name);
      held.push_back(entry->handle.lock());
      is_wanted = is_wanted || (held.back() && held.back()->is_protection_wanted());
    }
  }
  if (!is_wanted) return std::nullopt;
  Vfs& near = *settings_.group[settings_.own].files;
  for (const AttemptName& name : names) {
    if (near.open_read(mark_of(name), Access::kBuffered)) return name;
  }
  return std::nullopt;
}

// The one that most others have begun or written, else the newest: a checkpoint counts only if all
// nodes write its parity. While one is on its way, no other is begun, whose files would have to
// stay everywhere.
std::optional<AttemptName> NodeParity::to_write() {
  if (!settings_.leads) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Entry* best = nullptr;
  bool is_one_on_its_way = false;
  for (const Entry& entry : entries_) {
    is_one_on_its_way = is_one_on_its_way || (entry.is_written && !entry.is_protected);
    if (!entry.is_committed || entry.is_written || entry.is_unwritable) continue;
    if (best == nullptr || entry.others() >= best->others()) best = &entry;
  }
  if (best == nullptr || (best->others() == 0 && is_one_on_its_way)) return std::nullopt;
  in_work_ = best->name;
  return best->name;
}

bool NodeParity::try_write(const AttemptName& name) {
  tell_group(name, ParityStage::kBegun);
  const Status written = write(name);
  note_written(name, written);
  if (written) tell_group(name, ParityStage::kWritten);
  return written.has_value();
}

Status NodeParity::write(const AttemptName& name) {
  const trace::Span span("parity");
  const Peer& own = settings_.group[settings_.own];
  DF_TRY(const Manifest manifest, read_manifest(*own.files, name, ""));
  std::vector<ParityMember> members;
  for (const Peer& peer : settings_.group) {
    members.push_back({.node = peer.node,
                       .vfs = peer.files.get(),
                       .files = files_of_ranks(manifest, peer.ranks)});
  }
  return write_parity({.manifest = manifest,
                       .members = members,
                       .own = settings_.own,
                       .parity = settings_.parity.parity,
                       .nodes = settings_.leaders.size()},
                      {.rate = rate_, .stop = stop_});
}

// A damaged source stays damaged, and a checkpoint that a node has deleted is gone.
void NodeParity::note_written(const AttemptName& name, const Status& written) {
  const auto code = written ? ErrorCode::kInternal : written.error().code();
  const bool is_final = code == ErrorCode::kCorrupt || code == ErrorCode::kGone ||
                        code == ErrorCode::kNotFound || code == ErrorCode::kInvalidArgument;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    in_work_.reset();
    if (Entry* const entry = find(name)) {
      entry->is_written = written.has_value();
      entry->is_unwritable = is_final;
      if (written) entry->written.insert(own_leader());
    }
    if (written) pause_ = kParityPauseMin;
    if (code != ErrorCode::kCancelled) {
      is_new = !std::exchange(is_failing_, !written) && !written;
    }
    changed_.notify_all();
  }
  if (is_new) {
    log_warning(fmt::format("protect step {}: {}. {}", name.step, written.error().message(),
                            is_final ? "Later checkpoints are tried" : "It is tried again"));
  }
}

// The first leader of a group tells rank 0 that the group has it; rank 0 tells all.
void NodeParity::tell_stages() {
  std::vector<AttemptName> group;
  std::vector<AttemptName> all;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      const bool has_group = entry.written.size() == settings_.group.size();
      if (has_group && settings_.own == 0 && !std::exchange(entry.is_group_told, true)) {
        group.push_back(entry.name);
        if (is_rank0()) entry.groups.insert(own_leader());
      }
      if (is_rank0() && entry.groups.size() == settings_.groups && !entry.is_protected) {
        entry.is_protected = true;
        all.push_back(entry.name);
      }
    }
  }
  for (const AttemptName& name : all) tell_all(name);
  if (is_rank0()) return;
  for (const AttemptName& name : group) {
    (void)settings_.send(settings_.leaders.front(), message_of(name, ParityStage::kGroup));
  }
}

// A node that has heard the end of it already answers so.
void NodeParity::tell_again() {
  std::vector<AttemptName> written;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      entry.is_group_told = false;
      if (entry.is_written) written.push_back(entry.name);
    }
  }
  for (const AttemptName& name : written) tell_group(name, ParityStage::kWritten);
}

// The mark is for the other ranks of this node, for tools, and for the next process.
void NodeParity::settle(const AttemptName& name) {
  if (settings_.leads) {
    const auto mark =
        settings_.group[settings_.own].files->create(mark_of(name), Access::kBuffered);
    if (mark) (void)(*mark)->close();
  }
  std::shared_ptr<SaveHandle::State> handle;
  {
    const std::lock_guard lock(mutex_);
    if (Entry* const entry = find(name)) handle = entry->handle.lock();
    protected_ = name;
  }
  if (handle) handle->protect();
  give_up_until(name);
}

void NodeParity::give_up_until(const AttemptName& name) {
  std::vector<std::shared_ptr<SaveHandle::State>> dropped;
  {
    const std::lock_guard lock(mutex_);
    const Entry* const settled = find(name);
    if (settled == nullptr) return;
    const std::uint64_t number = settled->number;
    for (const Entry& entry : entries_) {
      if (entry.number < number) dropped.push_back(entry.handle.lock());
    }
    std::erase_if(entries_, [&](const Entry& entry) { return entry.number <= number; });
    changed_.notify_all();
  }
  give_up(dropped);
}

// With the lock held, as the next.
bool NodeParity::is_gone(std::uint32_t leader) const {
  const auto lost = lost_.find(leader);
  return lost != lost_.end() && Monotonic::now() - lost->second >= kParityLinkMax;
}

// Nodes without a link are not waited for, nor is rank 0's word.
bool NodeParity::is_drained() const {
  const auto newest =
      std::ranges::find(entries_.rbegin(), entries_.rend(), true, &Entry::is_committed);
  if (!settings_.leads || newest == entries_.rend()) return true;
  bool has_all = true;
  for (std::size_t member = 0; member < settings_.group.size(); ++member) {
    const bool is_there = newest->written.contains(leader_of(member));
    const bool is_missed = member == settings_.own ? is_failing_ : is_gone(leader_of(member));
    if (!is_there && !is_missed) return false;
    has_all = has_all && is_there;
  }
  return !has_all || is_gone(settings_.leaders.front());
}

void NodeParity::drain(std::chrono::milliseconds patience) {
  const auto until = Monotonic::now() + patience;
  std::unique_lock lock(mutex_);
  is_failing_ = false;  // a last try counts
  wake();
  while (!is_drained() && Monotonic::now() < until) {
    changed_.wait_for(lock, std::min<Monotonic::duration>(kDrainLook, until - Monotonic::now()));
  }
}

void NodeParity::stop() {
  if (thread_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
    rate_.stop();
    wake();
  }
  thread_.clear();  // joins
  std::vector<Entry> left;
  {
    const std::lock_guard lock(mutex_);
    std::swap(left, entries_);
  }
  for (const Entry& entry : left) {
    if (const auto handle = entry.handle.lock()) handle->give_up_protection("the run was closed");
  }
  if (settings_.leads && !left.empty() && left.back().is_committed && !left.back().is_written) {
    log_warning(fmt::format("close: step {} has no parity on this node", left.back().name.step));
  }
}

}  // namespace deepfreeze
