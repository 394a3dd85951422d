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

bool has_mark(Vfs& vfs, const AttemptName& name) {
  return vfs.open_read(mark_of(name), Access::kBuffered).has_value();
}

// What a former process has protected.
std::optional<AttemptName> newest_with_mark(Vfs& vfs) {
  const auto listing = read_run(vfs);
  if (!listing) return std::nullopt;
  std::optional<Point> newest;
  for (const AttemptState& attempt : listing->attempts) {
    if (!attempt.committed()) continue;
    const Point& point = attempt.manifest->point;
    if ((!newest || older(*newest, point)) && has_mark(vfs, attempt.name)) newest = point;
  }
  if (!newest) return std::nullopt;
  return AttemptName{newest->step, newest->attempt_id};
}

LinkProtected message_of(const AttemptName& name) {
  return {.attempt = {.step = name.step, .attempt_id = name.attempt_id}};
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
    : settings_(std::move(settings)),
      rate_(settings_.parity.bytes_per_second),
      protected_(newest_with_mark(*settings_.group[settings_.own].files)) {}

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
    while (entries_.size() > kUnprotectedMax) {
      dropped.push_back(entries_.front().handle.lock());
      entries_.erase(entries_.begin());
    }
    pause_ = kParityPauseMin;
    wake();
  }
  give_up(dropped);
}

std::vector<AttemptName> NodeParity::held() const {
  const std::lock_guard lock(mutex_);
  return protected_ ? std::vector<AttemptName>{*protected_} : std::vector<AttemptName>();
}

void NodeParity::take(std::uint32_t rank, LinkMessage message) {
  const auto* told = std::get_if<LinkProtected>(&message);
  const auto peer = std::ranges::find_if(
      settings_.group, [&](const Peer& one) { return one.ranks.front() == rank; });
  if (told == nullptr || peer == settings_.group.end()) return;
  const std::lock_guard lock(mutex_);
  if (Entry* const entry = find({told->attempt.step, told->attempt.attempt_id})) {
    entry->seen.insert(static_cast<std::size_t>(peer - settings_.group.begin()));
    wake();
  }
}

// A message may have been lost with the link.
void NodeParity::note(const LinkState& state) {
  std::vector<AttemptName> written;
  {
    const std::lock_guard lock(mutex_);
    if (!state.is_up) lost_.emplace(state.rank, Monotonic::now());
    if (state.is_up) lost_.erase(state.rank);
    wake();
    if (!state.is_up || !settings_.leads) return;
    if (protected_) written.push_back(*protected_);
    for (const Entry& entry : entries_) {
      if (entry.is_written) written.push_back(entry.name);
    }
  }
  for (const AttemptName& name : written) (void)settings_.send(state.rank, message_of(name));
}

// A link that is not up now tells the rest once it is.
void NodeParity::announce(const AttemptName& name) const {
  for (std::size_t peer = 0; peer < settings_.group.size(); ++peer) {
    if (peer == settings_.own) continue;
    (void)settings_.send(settings_.group[peer].ranks.front(), message_of(name));
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
  std::unique_lock lock(mutex_);
  const auto is_woken = [&] { return wakes_ != wakes; };
  if (std::ranges::none_of(entries_, &Entry::is_committed)) return changed_.wait(lock, is_woken);
  changed_.wait_for(lock, pause_, is_woken);
  pause_ = std::min(2 * pause_, kParityPauseMax);
}

// One piece of work. False: there is none, or it failed.
bool NodeParity::step() {
  if (const auto name = to_write()) {
    const Status written = write(*name);
    note_written(*name, written);
    if (written) announce(*name);
    return written.has_value();
  }
  if (const auto name = to_settle()) {
    settle(*name);
    return true;
  }
  for (const AttemptName& name : to_look_for()) {
    if (is_marked(name)) settle(name);
  }
  return false;
}

// The newest that is committed, unless it is written.
std::optional<AttemptName> NodeParity::to_write() {
  if (!settings_.leads) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto newest =
      std::ranges::find(entries_.rbegin(), entries_.rend(), true, &Entry::is_committed);
  if (newest == entries_.rend() || newest->is_written) return std::nullopt;
  return newest->name;
}

// The newest whose parity all nodes have.
std::optional<AttemptName> NodeParity::to_settle() {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& one) {
        return one.is_written && one.seen.size() == settings_.group.size();
      });
  if (found == entries_.rend()) return std::nullopt;
  return found->name;
}

// For a rank that does not lead.
std::vector<AttemptName> NodeParity::to_look_for() {
  std::vector<std::shared_ptr<SaveHandle::State>> held;  // whose end must not come under the lock
  std::vector<AttemptName> names;
  if (settings_.leads) return names;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    held.push_back(entry.handle.lock());
    const bool is_wanted = held.back() && held.back()->is_protection_wanted();
    if (entry.is_committed && is_wanted) names.push_back(entry.name);
  }
  return names;
}

bool NodeParity::is_marked(const AttemptName& name) const {
  return has_mark(*settings_.group[settings_.own].files, name);
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
                       .nodes = settings_.nodes},
                      {.rate = rate_, .stop = stop_});
}

void NodeParity::note_written(const AttemptName& name, const Status& written) {
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    Entry* const entry = find(name);
    if (entry != nullptr && written) {
      entry->is_written = true;
      entry->seen.insert(settings_.own);
    }
    if (written) pause_ = kParityPauseMin;
    const bool is_stopped = !written && written.error().code() == ErrorCode::kCancelled;
    if (!is_stopped) is_new = !std::exchange(is_failing_, !written) && !written;
    changed_.notify_all();
  }
  if (is_new) {
    log_warning(
        fmt::format("protect step {}: {}. It is tried again, until a newer checkpoint is "
                    "committed",
                    name.step, written.error().message()));
  }
}

// The mark is for the other ranks of this node, and for its next process.
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
  give_up_before(name);
}

// All nodes write the newest first, and none before it after that.
void NodeParity::give_up_before(const AttemptName& name) {
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
bool NodeParity::is_gone(const Peer& peer) const {
  const auto lost = lost_.find(peer.ranks.front());
  return lost != lost_.end() && Monotonic::now() - lost->second >= kParityLinkMax;
}

bool NodeParity::is_drained() const {
  const auto newest =
      std::ranges::find(entries_.rbegin(), entries_.rend(), true, &Entry::is_committed);
  if (!settings_.leads || newest == entries_.rend()) return true;
  if (!newest->is_written) return is_failing_;
  for (std::size_t peer = 0; peer < settings_.group.size(); ++peer) {
    if (!newest->seen.contains(peer) && !is_gone(settings_.group[peer])) return false;
  }
  return newest->seen.size() < settings_.group.size();  // else the thread is about to settle it
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
