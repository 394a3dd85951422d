#include "api/node_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/trace.h"
#include "base/try.h"
#include "format/names.h"

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

// Without the lock: a handle may end here.
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
    : settings_(std::move(settings)), rate_(settings_.parity.bytes_per_second) {
  if (settings_.leads && own_leader() == rank0()) conductor_.emplace(settings_.leaders);
}

NodeParity::Entry* NodeParity::find(const AttemptName& name) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

const NodeParity::Entry* NodeParity::newest_committed() const {
  const auto newest =
      std::ranges::find(entries_.rbegin(), entries_.rend(), true, &Entry::is_committed);
  return newest == entries_.rend() ? nullptr : &*newest;
}

void NodeParity::wake() {
  ++wakes_;
  changed_.notify_all();
}

void NodeParity::expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle) {
  handle->meant_to_be_protected();
  const std::lock_guard lock(mutex_);
  entries_.push_back({.name = name, .handle = handle});
}

void NodeParity::forget(const AttemptName& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

void NodeParity::committed(const AttemptName& name) {
  std::vector<std::shared_ptr<SaveHandle::State>> dropped;
  ParityConductor::Orders orders;
  {
    const std::lock_guard lock(mutex_);
    if (Entry* const entry = find(name)) entry->is_committed = true;
    while (entries_.size() > kUnprotectedMax) {
      const bool is_current = current_ && current_->name == entries_.front().name;
      const auto oldest = entries_.begin() + (is_current ? 1 : 0);
      dropped.push_back(oldest->handle.lock());
      entries_.erase(oldest);
    }
    if (conductor_) orders = conductor_->committed(name);
    pause_ = kParityPauseMin;
    wake();
  }
  carry_out(orders);
  give_up(dropped);
}

std::vector<AttemptName> NodeParity::held() const {
  const std::lock_guard lock(mutex_);
  return current_ ? std::vector<AttemptName>{current_->name} : std::vector<AttemptName>();
}

void NodeParity::carry_out(const ParityConductor::Orders& orders) {
  for (const ParityConductor::Order& order : orders) {
    for (const std::uint32_t leader : order.to) {
      if (leader == own_leader()) {
        obey(order.name, order.stage);
      } else {
        (void)settings_.send(leader, message_of(order.name, order.stage));
      }
    }
  }
}

// It is sent again until rank 0 answers: tell_again().
void NodeParity::tell_rank0(const AttemptName& name, ParityStage stage) {
  ParityConductor::Orders orders;
  {
    const std::lock_guard lock(mutex_);
    if (conductor_) orders = conductor_->told(own_leader(), name, stage);
  }
  carry_out(orders);
  if (own_leader() != rank0()) (void)settings_.send(rank0(), message_of(name, stage));
}

// A word of rank 0.
void NodeParity::obey(const AttemptName& name, ParityStage stage) {
  bool has_it = false;
  {
    const std::lock_guard lock(mutex_);
    if (stage == ParityStage::kAll) {
      if (protected_ != name) settling_ = name;
    } else if (protected_ == name || (current_ && current_->name == name && current_->is_written)) {
      has_it = true;
    } else if (current_ && current_->name == name) {
      current_->has_failed = false;
    } else {
      current_ = Current{.name = name};
      pause_ = kParityPauseMin;
      leave_.store(true, std::memory_order_relaxed);  // whatever is being written
    }
    wake();
  }
  if (has_it) tell_rank0(name, ParityStage::kWritten);
}

void NodeParity::take(std::uint32_t rank, LinkMessage message) {
  const auto* said = std::get_if<LinkProtected>(&message);
  if (said == nullptr || !settings_.leads) return;
  const AttemptName name{said->attempt.step, said->attempt.attempt_id};
  const bool is_order = said->stage == ParityStage::kBegin || said->stage == ParityStage::kAll;
  if (is_order) {
    if (rank == rank0()) obey(name, said->stage);
    return;
  }
  ParityConductor::Orders orders;
  {
    const std::lock_guard lock(mutex_);
    if (!conductor_) return;
    orders = conductor_->told(rank, name, said->stage);
    wake();
  }
  carry_out(orders);
}

// Messages may have been lost with the link: they are sent again soon.
void NodeParity::note(const LinkState& state) {
  const std::lock_guard lock(mutex_);
  if (state.is_up) {
    lost_.erase(state.rank);
    pause_ = kParityPauseMin;
  } else {
    lost_.emplace(state.rank, Monotonic::now());
  }
  wake();
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

// Whether time alone may bring something to do.
bool NodeParity::is_waiting() const {
  if (!settings_.leads) return newest_committed() != nullptr;
  return current_.has_value() || (conductor_ && conductor_->current());
}

// Until there is something new since `wakes` was read, or a message is to be sent again.
void NodeParity::pause(std::uint64_t wakes) {
  {
    std::unique_lock lock(mutex_);
    const auto is_woken = [&] { return wakes_ != wakes; };
    if (!is_waiting()) return changed_.wait(lock, is_woken);
    if (changed_.wait_for(lock, pause_, is_woken)) return;
    pause_ = std::min(2 * pause_, settings_.leads ? kParityPauseMax : kMarkPauseMax);
  }
  tell_again();
}

// Any message may have been lost, or refused because too many waited.
void NodeParity::tell_again() {
  std::optional<AttemptName> written;
  ParityConductor::Orders orders;
  {
    const std::lock_guard lock(mutex_);
    if (current_ && current_->is_written) written = current_->name;
    if (conductor_) orders = conductor_->again();
  }
  if (written) tell_rank0(*written, ParityStage::kWritten);
  carry_out(orders);
}

// One piece of work. False: there is none, or it failed.
bool NodeParity::step() {
  if (const auto name = settings_.leads ? to_settle() : marked()) {
    settle(*name);
    return true;
  }
  const auto name = to_write();
  return name && try_write(*name);
}

std::optional<AttemptName> NodeParity::to_settle() {
  const std::lock_guard lock(mutex_);
  return std::exchange(settling_, std::nullopt);
}

// Rank 0 commits before the others do: its word may come first.
std::optional<AttemptName> NodeParity::to_write() {
  const std::lock_guard lock(mutex_);
  const bool is_over = stop_.load(std::memory_order_relaxed);
  if (is_over || !current_ || current_->is_written || current_->has_failed) return std::nullopt;
  const Entry* const entry = find(current_->name);
  if (entry != nullptr && !entry->is_committed) return std::nullopt;
  leave_.store(false, std::memory_order_relaxed);
  return current_->name;
}

// For a rank that does not lead: the newest that its leader has marked, if somebody waits for one.
std::optional<AttemptName> NodeParity::marked() const {
  std::vector<AttemptName> names;                        // newest first
  std::vector<std::shared_ptr<SaveHandle::State>> held;  // until the lock is given back
  bool is_wanted = false;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : std::views::reverse(entries_)) {
      if (!entry.is_committed) continue;
      names.push_back(entry.name);
      held.push_back(entry.handle.lock());
      is_wanted = is_wanted || (held.back() && held.back()->is_protection_wanted());
    }
  }
  if (!is_wanted) return std::nullopt;
  const auto found = std::ranges::find_if(names, [this](const AttemptName& name) {
    return near().open_read(mark_of(name), Access::kBuffered).has_value();
  });
  return found == names.end() ? std::nullopt : std::optional(*found);
}

bool NodeParity::try_write(const AttemptName& name) {
  const Status written = write(name);
  if (!note_written(name, written)) return true;  // another one is wanted by now
  tell_rank0(name, written ? ParityStage::kWritten : ParityStage::kFailed);
  return written.has_value();
}

Status NodeParity::write(const AttemptName& name) {
  const trace::Span span("parity");
  DF_TRY(const Manifest manifest, read_manifest(near(), name, ""));
  std::vector<ParityMember> members;
  for (const Peer& peer : settings_.group) {
    members.push_back({.node = peer.node,
                       .vfs = peer.files.get(),
                       .files = files_of_ranks(manifest, peer.ranks)});
  }
  DF_TRY_VOID(write_parity({.manifest = manifest,
                            .members = members,
                            .own = settings_.own,
                            .parity = settings_.parity.parity,
                            .nodes = settings_.leaders.size()},
                           {.rate = rate_, .stop = leave_}));
  // A collector that had listed the run before may have deleted it: then nothing is told.
  const auto left = read_manifest(near(), name, "");
  return left ? Status{} : std::unexpected(left.error());
}

// False: rank 0 wants another one by now, or the thread is to end.
bool NodeParity::note_written(const AttemptName& name, const Status& written) {
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (!current_ || current_->name != name || stop_.load(std::memory_order_relaxed)) return false;
    current_->is_written = written.has_value();
    current_->has_failed = !written;
    is_new = !std::exchange(is_told_, !written) && !written;
  }
  if (is_new) {
    log_warning(
        fmt::format("protect step {}: {}. It is tried again until a newer checkpoint is "
                    "committed",
                    name.step, written.error().message()));
  }
  return true;
}

// The mark is for the other ranks of this node, for collectors, and for the next process.
void NodeParity::settle(const AttemptName& name) {
  if (settings_.leads) {
    const auto mark = near().create(mark_of(name), Access::kBuffered);
    if (mark) (void)(*mark)->close();
  }
  std::shared_ptr<SaveHandle::State> handle;
  std::vector<std::shared_ptr<SaveHandle::State>> dropped;
  {
    const std::lock_guard lock(mutex_);
    protected_ = name;
    if (current_ && current_->name == name) current_.reset();
    const auto settled = std::ranges::find(entries_, name, &Entry::name);
    if (settled != entries_.end()) {
      handle = settled->handle.lock();
      for (const Entry& older : std::ranges::subrange(entries_.begin(), settled)) {
        dropped.push_back(older.handle.lock());
      }
      entries_.erase(entries_.begin(), settled + 1);
    }
    changed_.notify_all();
  }
  if (handle) handle->protect();
  give_up(dropped);
}

bool NodeParity::is_gone(std::uint32_t leader) const {
  const auto lost = lost_.find(leader);
  return lost != lost_.end() && Monotonic::now() - lost->second >= kParityLinkMax;
}

// Others wait for rank 0's word, and rank 0 for those leaders that may still have one.
bool NodeParity::is_drained() const {
  if (!settings_.leads || newest_committed() == nullptr) return true;
  if (!conductor_) return is_gone(rank0());
  return conductor_->current() && std::ranges::all_of(conductor_->awaited(), [this](auto leader) {
           return leader != own_leader() && is_gone(leader);
         });
}

void NodeParity::drain(std::chrono::milliseconds patience) {
  const auto until = Monotonic::now() + patience;
  if (settings_.leads) tell_again();  // a last try counts
  std::unique_lock lock(mutex_);
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
    leave_.store(true, std::memory_order_relaxed);
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
  if (settings_.leads && !left.empty() && left.back().is_committed) {
    log_warning(fmt::format("close: step {} is not protected by parity", left.back().name.step));
  }
}

}  // namespace deepfreeze
