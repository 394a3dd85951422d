#include "api/node_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/scope_exit.h"
#include "base/trace.h"
#include "base/try.h"
#include "format/names.h"
#include "link/connection.h"
#include "manifest/record_file.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kDrainLook{100};
static_assert(kParityLinkMax > LinkTimes().retry_max);

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

LinkAttempt attempt_of(const AttemptName& name) {
  return {.step = name.step, .attempt_id = name.attempt_id};
}

LinkProtected message_of(const ParityConductor::Order& order) {
  LinkProtected message{
      .attempt = attempt_of(order.name), .stage = order.stage, .turn = order.turn};
  if (order.last) message.last = attempt_of(*order.last);
  return message;
}

ParityConductor::Order order_of(const LinkProtected& message) {
  ParityConductor::Order order{.stage = message.stage,
                               .name = {message.attempt.step, message.attempt.attempt_id},
                               .turn = message.turn,
                               .to = {}};
  if (message.last) order.last = AttemptName{message.last->step, message.last->attempt_id};
  return order;
}

}  // namespace

Result<std::unique_ptr<NodeParity>> NodeParity::start(Settings settings) {
  auto parity = std::make_unique<NodeParity>(std::move(settings));
  parity->lock_node();
  parity->thread_ = start_threads(1, "df-parity", [own = parity.get()] { own->work(); });
  if (!parity->thread_.empty()) return parity;
  return fail(ErrorCode::kNoSpace, "protect: the system refuses a thread");
}

NodeParity::NodeParity(Settings settings)
    : settings_(std::move(settings)), rate_(settings_.parity.bytes_per_second) {
  if (settings_.leads && own_leader() == rank0()) conductor_.emplace(settings_.leaders);
}

// Without it the others wait for kParityLinkMax alone.
void NodeParity::lock_node() {
  if (!settings_.leads) return;
  if (auto lock = FileLock::take(near().path_of(kNodeFile))) lock_ = *std::move(lock);
}

NodeParity::Entry* NodeParity::find(const AttemptName& name) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

std::size_t NodeParity::committed_count() const {
  return static_cast<std::size_t>(std::ranges::count(entries_, true, &Entry::is_committed));
}

void NodeParity::wake() {
  ++wakes_;
  changed_.notify_all();
}

// A moment that is near already stays: saves in quick succession must not put it off.
void NodeParity::restart_pause() {
  pause_ = kParityPauseMin;
  const auto now = Monotonic::now();
  if (repeat_at_ < now || repeat_at_ > now + pause_) repeat_at_ = now + pause_;
}

void NodeParity::expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle) {
  handle->meant_to_be_protected();
  const std::lock_guard lock(mutex_);
  entries_.push_back({.name = name, .handle = handle});
}

void NodeParity::forget(const AttemptName& name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
  wake();  // rank 0 may have said to begin: the node has nothing to protect
}

void NodeParity::committed(const AttemptName& name) {
  {
    const std::lock_guard lock(mutex_);
    if (Entry* const entry = find(name)) entry->is_committed = true;
    // A rank that does not lead looks at the marks first: look().
    while (settings_.leads && committed_count() > kUnprotectedMax) {
      const auto oldest = std::ranges::find_if(entries_, [this](const Entry& entry) {
        return entry.is_committed && !(current_ && current_->name == entry.name);
      });
      decide(AttemptName(oldest->name), false);
    }
    restart_pause();
    wake();
  }
  conduct([&](ParityConductor& conductor) { return conductor.committed(name); });
}

// drain() does not return while an order of rank 0 is on its way out: the links end after it.
template <class Ask>
void NodeParity::conduct(Ask ask) {
  ParityConductor::Orders orders;
  {
    const std::lock_guard lock(mutex_);
    if (!conductor_) return;
    orders = ask(*conductor_);
    ++sending_;
  }
  const ScopeExit sent([this] {
    const std::lock_guard lock(mutex_);
    --sending_;
    wake();
  });
  carry_out(orders);
}

void NodeParity::carry_out(const ParityConductor::Orders& orders) {
  for (const ParityConductor::Order& order : orders) {
    for (const std::uint32_t leader : order.to) {
      if (leader == own_leader()) {
        obey(order);
      } else {
        (void)settings_.send(leader, message_of(order));
      }
    }
  }
}

// It is sent again until rank 0 answers: tell_again().
void NodeParity::tell_rank0(const AttemptName& name, ParityStage stage, std::uint64_t turn) {
  conduct(
      [&](ParityConductor& conductor) { return conductor.told(own_leader(), name, stage, turn); });
  if (own_leader() == rank0()) return;
  (void)settings_.send(rank0(),
                       LinkProtected{.attempt = attempt_of(name), .stage = stage, .turn = turn});
}

// Whether its parity is written already.
bool NodeParity::begin(const ParityConductor::Order& order) {
  if (order.last && order.last != protected_) decide(*order.last, true);
  give_up_older(order.name);
  if (protected_ == order.name) return true;
  if (current_ && current_->name == order.name) {
    current_->turn = order.turn;
    current_->has_failed = false;
    return current_->is_written;
  }
  take_back(order.name);
  current_ = Current{.name = order.name, .turn = order.turn};
  settings_.hold->hold(order.name);
  restart_pause();
  leave_.store(true, std::memory_order_relaxed);  // the parity that is being written
  return false;
}

// An order of rank 0.
void NodeParity::obey(const ParityConductor::Order& order) {
  bool has_it = false;
  {
    const std::lock_guard lock(mutex_);
    if (order.turn < turn_) return;  // a later one has overtaken it
    turn_ = order.turn;
    if (order.stage == ParityStage::kBegin) {
      has_it = begin(order);
    } else if (protected_ != order.name) {
      decide(order.name, true);
    }
    wake();
  }
  if (has_it) tell_rank0(order.name, ParityStage::kWritten, order.turn);
}

void NodeParity::take(std::uint32_t rank, LinkMessage message) {
  const auto* said = std::get_if<LinkProtected>(&message);
  if (said == nullptr || !settings_.leads) return;
  const ParityConductor::Order word = order_of(*said);
  if (word.stage == ParityStage::kEnded) {
    const std::lock_guard lock(mutex_);
    ended_.insert(rank);
    return wake();
  }
  const bool is_order = word.stage == ParityStage::kBegin || word.stage == ParityStage::kAll;
  if (is_order) {
    if (rank == rank0()) obey(word);
    return;
  }
  conduct([&](ParityConductor& conductor) {
    return conductor.told(rank, word.name, word.stage, word.turn);
  });
}

// Messages may have been lost with the link: they are sent again soon.
void NodeParity::note(const LinkState& state) {
  const std::lock_guard lock(mutex_);
  if (state.is_up) {
    lost_.erase(state.rank);
    restart_pause();
  } else {
    lost_.emplace(state.rank, Monotonic::now());
  }
  wake();
}

void NodeParity::work() {
  step_aside();
  while (true) {
    try {
      std::uint64_t wakes = 0;
      {
        // Both at once: stop() changes them at once, so that it is never slept through.
        const std::lock_guard lock(mutex_);
        if (stop_.load(std::memory_order_relaxed)) return;
        wakes = wakes_;
      }
      if (!step()) pause(wakes);
    } catch (const std::exception& cause) {  // memory is refused: it is tried again
      log_exception("protect", cause);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kParityPauseMin);
    }
  }
}

// Whether time alone may bring something to do.
bool NodeParity::is_waiting() const {
  if (!settings_.leads) return committed_count() > 0;
  return current_ || !verdicts_.empty() || (conductor_ && conductor_->current());
}

// Until there is something new since `wakes` was read, or a message is to be sent again. News must
// not put off the second for ever.
void NodeParity::pause(std::uint64_t wakes) {
  {
    std::unique_lock lock(mutex_);
    const auto is_woken = [&] { return wakes_ != wakes; };
    if (!is_waiting()) return changed_.wait(lock, is_woken);
    if (changed_.wait_until(lock, repeat_at_, is_woken) && Monotonic::now() < repeat_at_) return;
    pause_ = std::min(2 * pause_, settings_.leads ? kParityPauseMax : kMarkPauseMax);
    repeat_at_ = Monotonic::now() + pause_;
  }
  tell_again();
}

// Any message may have been lost, or refused because too many waited.
void NodeParity::tell_again() {
  std::optional<Current> written;
  {
    const std::lock_guard lock(mutex_);
    if (current_ && current_->is_written) written = current_;
  }
  if (written) tell_rank0(written->name, ParityStage::kWritten, written->turn);
  conduct([](ParityConductor& conductor) { return conductor.again(); });
}

// One piece of work. False: there is none, or it failed.
bool NodeParity::step() {
  if (!settings_.leads) return look();
  if (settle_all()) return true;
  const auto name = to_write();
  return name && try_write(*name);
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

bool NodeParity::try_write(const AttemptName& name) {
  Status written;
  try {
    written = write(name);
  } catch (const std::exception& cause) {
    written = fail(ErrorCode::kNoSpace, fmt::format("memory: {}", cause.what()));
  }
  if (!note_written(name, written)) return true;  // another one is wanted by now
  std::uint64_t turn = 0;
  {
    const std::lock_guard lock(mutex_);
    if (current_) turn = current_->turn;
  }
  tell_rank0(name, written ? ParityStage::kWritten : ParityStage::kFailed, turn);
  return written.has_value();
}

Status NodeParity::write(const AttemptName& name) {
  const trace::Span span("parity");
  // Too many saves were open here, and rank 0 has begun with this one all the same. The directory
  // is synced with the parity.
  const auto unmarked =
      near().remove_file(fmt::format("{}/{}", attempt_dir_name(name), kUnprotectedFile));
  if (!unmarked && unmarked.error().code() != ErrorCode::kNotFound) return unmarked;
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
    if (!written && written.error().code() == ErrorCode::kCancelled) return true;  // at the end
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

bool NodeParity::is_gone(std::uint32_t leader) const {
  if (ended_.contains(leader)) return true;
  const auto lost = lost_.find(leader);
  return lost != lost_.end() && Monotonic::now() - lost->second >= settings_.link_max;
}

// Others wait for rank 0's word, and rank 0 for those leaders that may still have one.
bool NodeParity::is_drained() const {
  if (sending_ > 0) return false;
  if (!verdicts_.empty()) return is_mark_told_;
  if (committed_count() == 0) return true;
  if (!settings_.leads) return false;
  if (!conductor_) return is_gone(rank0());
  return conductor_->current() && std::ranges::all_of(conductor_->awaited(), [this](auto leader) {
           return leader != own_leader() && is_gone(leader);
         });
}

void NodeParity::drain(std::chrono::milliseconds patience) noexcept {
  try {
    await_drained(patience);
  } catch (const std::exception& cause) {
    log_exception("protect", cause);
  }
}

void NodeParity::await_drained(std::chrono::milliseconds patience) {
  const auto until = Monotonic::now() + patience;
  auto heard = Monotonic::now();      // when the leader was there
  if (settings_.leads) tell_again();  // a last try counts
  std::unique_lock lock(mutex_);
  wake();
  while (!is_drained() && Monotonic::now() < until) {
    changed_.wait_for(lock, std::min<Monotonic::duration>(kDrainLook, until - Monotonic::now()));
    if (settings_.leads) continue;
    wake();  // the thread looks at the marks again
    lock.unlock();
    if (FileLock::is_taken(near().path_of(kNodeFile))) heard = Monotonic::now();
    lock.lock();
    if (Monotonic::now() - heard >= settings_.link_max) return;
  }
}

void NodeParity::stop() noexcept {
  if (thread_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
    leave_.store(true, std::memory_order_relaxed);
    rate_.stop();
    wake();
  }
  thread_.clear();  // joins
  try {
    if (settings_.leads) (void)settle_all();
    if (!settings_.leads) (void)look();
    end_all();
    lock_ = FileLock();
  } catch (const std::exception& cause) {
    log_exception("protect", cause);
  }
}

// A checkpoint of which this node has written its parity gets no mark: other nodes may have one
// that says "protected".
void NodeParity::end_all() {
  std::vector<Verdict> unmarked;
  std::vector<Entry> left;
  std::optional<AttemptName> written;
  {
    const std::lock_guard lock(mutex_);
    std::swap(unmarked, verdicts_);
    std::swap(left, entries_);
    if (current_ && current_->is_written) written = current_->name;
  }
  for (const Verdict& one : unmarked) tell(one.handle, false, "the run was closed");
  for (const Entry& entry : left) {
    // For collectors, and for the other ranks of this node, which wait for it in drain().
    if (settings_.leads && entry.is_committed && entry.name != written) {
      (void)mark({.name = entry.name, .handle = {}});
    }
    tell(entry.handle, false, "the run was closed");
  }
  if (settings_.leads && !left.empty() && left.back().is_committed) {
    log_warning(fmt::format("close: step {} is not protected by parity", left.back().name.step));
  }
}

}  // namespace deepfreeze
