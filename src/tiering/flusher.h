// Brings a run's committed attempts to its farther tiers, newest first, with one thread for each
// tier. It keeps no state that matters: the next copy is a function of the content of the
// tiers (flush_plan.h), so that another process can go on at any moment.
//
// A tier that fails is tried again, after pauses that grow; it is logged once. Functions are for
// any thread. The functions of Settings are called by the flusher's threads, without its lock; they
// must not wait for it, nor for a disk.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "storage/vfs_tier_store.h"
#include "tiering/flush.h"
#include "tiering/flush_plan.h"
#include "tiering/packing_judge.h"

namespace deepfreeze {

inline constexpr std::chrono::milliseconds kFlushPauseMin{100};
inline constexpr std::chrono::milliseconds kFlushPauseMax{30'000};
inline constexpr std::chrono::milliseconds kWatchPauseMax{1'000};
// After it stop() leaves threads behind that a file system does not let go.
inline constexpr std::chrono::milliseconds kStopMax{10'000};
inline constexpr std::size_t kMendsMax = 1000;
// A tier that does nothing for so long, while it has something to do, counts as failing.
inline constexpr std::chrono::seconds kStallMax{60};

struct FarTier {
  std::string place;  // as the user gave it
  std::unique_ptr<TierStore> store;
  std::optional<std::uint64_t> every = {};
  Keep keep = {};
  std::uint64_t bytes_per_second = 0;  // 0: no limit
  bool packs = false;                  // files, if it pays
};

// The state of one tier, for display.
struct TierReport {
  std::string place;
  std::size_t waiting = 0;                   // attempts
  std::optional<AttemptName> copying = {};   // now
  std::uint64_t bytes_sent = 0;              // of that attempt
  std::uint64_t bytes_total = 0;             // by this process
  std::uint64_t stored_total = 0;            // that were sent for them: fewer if they were packed
  std::uint64_t committed = 0;               // attempts, by this process
  std::uint64_t left_out = 0;                // attempts that were deleted before they could be sent
  std::vector<AttemptName> unreadable = {};  // no nearer copy of them verifies
  std::uint64_t saves_refused = 0;           // for want of room, while the tier was behind
  std::uint64_t failures = 0;
  std::optional<Error> error = {};  // of the last try, if it failed
  bool is_over = false;             // another process continues the run there

  // `sent` were sent for these bytes; the lead and index of a packed file may make it more.
  void note_sent(std::uint64_t bytes, std::uint64_t sent) {
    bytes_sent += bytes;
    bytes_total += bytes;
    stored_total += sent;
  }
};

// A bad copy of a file, on a tier counted from the nearest, 0.
struct Mend {
  Manifest manifest;
  ManifestFile file;
  std::size_t bad = 0;
  bool operator==(const Mend&) const = default;
};

class Flusher {
 public:
  enum class Fate : std::uint8_t { kCommitted, kLeftOut };
  struct Settings {
    // Opens the first tier anew, for one thread: its directory may be replaced meanwhile.
    std::function<Result<std::unique_ptr<Vfs>>()> open_near;
    Keep near_keep = {};
    // Attempts of the first tier that stay for a reason of the caller's.
    std::function<std::vector<AttemptName>()> held = [] { return std::vector<AttemptName>(); };
    std::vector<FarTier> tiers = {};
    // False for a rank that does not commit: it copies and deletes nothing, and only looks.
    bool commits = true;
    // The files that the first tier has of each attempt; and, if they are one node's, whether this
    // process is the one that deletes on the other tiers for all nodes.
    FlushShare share = FlushShare::kAll;
    bool deletes_far = true;
    // Then files that other nodes have not brought are a failure: they may be lost.
    std::chrono::milliseconds share_wait_max = kStallMax;
    // The generation of this process's last commit; before one, 0, nothing is deleted anywhere.
    std::function<std::uint64_t()> generation = [] { return std::uint64_t{0}; };
    // The attempts that somebody waits for on tiers[tier], all committed on the first tier; and
    // the fate of one of them. `why` is for kLeftOut.
    std::function<std::vector<AttemptName>(std::size_t tier)> awaited = {};
    std::function<void(const AttemptName& name, std::size_t tier, Fate fate, std::string_view why)>
        tell = {};
  };
  // The last copy of the pointer stops it. Throws std::exception if the system refuses threads.
  [[nodiscard]] static std::shared_ptr<Flusher> start(Settings settings);
  explicit Flusher(Settings settings);
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;
  ~Flusher();

  // There may be something to do: an attempt was committed, or a claim made.
  void wake();
  // Returns once no tier waits for anything. kTimeout names the tiers that still do, and why; other
  // errors are those of a tier that is not tried any more, or of copies that do not verify. A tier
  // that fails is tried again until the timeout, or not at all.
  enum class OnFailure : std::uint8_t { kTryAgain, kGiveUp };
  [[nodiscard]] Status drain(std::chrono::milliseconds timeout,
                             OnFailure on_failure = OnFailure::kTryAgain);
  // Ends the copies that are under way, which a later flusher completes. Threads that do not come
  // back within `patience` are left behind, with a warning.
  void stop(std::chrono::milliseconds patience = kStopMax);

  // Replaces the bad copy by a good one of another tier, in the first tier's thread.
  void mend(Mend wanted);

  // The attempts of a listing of the first tier that only a thread of the flusher may delete there:
  // tiers wait for them, or have them as far as is known.
  [[nodiscard]] std::vector<AttemptName> held(const RunListing& near) const;
  // These were deleted from the first tier.
  void note_deleted(std::span<const AttemptName> names);
  [[nodiscard]] std::vector<TierReport> reports() const;

  // The space on the first tier, and the tiers for which it keeps attempts that its rules let go.
  struct Space {
    NearUse use;
    std::vector<std::size_t> tiers = {};
    bool is_moving = false;  // one of the tiers is not failing
    std::string why = {};    // their places and errors
  };
  // For a listing of the first tier.
  [[nodiscard]] Space space(const RunListing& near) const;
  // False: space() would find no such tier. Looks at no disk.
  [[nodiscard]] bool is_behind() const;
  // Returns after a while, or sooner if something was copied or has failed.
  void await_news(std::chrono::milliseconds timeout);
  void note_refused(std::span<const std::size_t> tiers);

 private:
  struct Worker {
    explicit Worker(FarTier far) : tier(std::move(far)), rate(tier.bytes_per_second) {}
    FarTier tier;
    RateLimit rate;
    PackingJudge judge;
    [[nodiscard]] PackingJudge* packing() { return tier.packs ? &judge : nullptr; }
    std::vector<AttemptName> settled;  // its own thread's: their names on the tier are durable
    // The same: attempts of which this node's files are there, and others' are missing, since then.
    std::vector<std::pair<AttemptName, Monotonic::time_point>> shared;
    bool is_near_told = false;  // its own thread's: a deletion that fails is told of once
    bool is_far_told = false;
    bool is_swept = false;  // its own thread's: of files that no checkpoint refers to
    bool is_sweep_told = false;

    // The rest is guarded by mutex_.
    TierReport report;
    std::shared_ptr<const RunListing> listing = std::make_shared<RunListing>();  // seen last
    bool has_work = true;     // until a pass has found nothing to do
    std::uint64_t wakes = 0;  // so far
    Monotonic::time_point next_try{};
    Monotonic::time_point progressed = Monotonic::now();  // bytes, or the end of a pass
    std::chrono::milliseconds pause = kFlushPauseMin;
    std::optional<AttemptName> failed_copy = {};  // that waits, and failed last
    bool is_told = false;                         // the user, of this absence of the tier
    bool has_ended = false;
    std::thread thread;

    // Something went well. A pass may take as long as training goes on, so its end is not awaited.
    void recover() {
      report.error.reset();
      report.is_over = false;
      pause = kFlushPauseMin;
      if (!failed_copy) is_told = false;
    }
    void give_work() {
      if (!has_work) progressed = Monotonic::now();  // an idle tier is not a failing one
      has_work = true;
      ++wakes;
    }
  };
  // One look at the tiers, and the work that follows from it.
  struct Round {
    std::size_t number;  // of the worker
    std::uint64_t wakes;
    std::vector<AttemptName> awaited;
    std::unique_ptr<Vfs> near;
    std::shared_ptr<const RunListing> listing;  // of near
  };

  void work(std::size_t number);
  [[nodiscard]] bool await_work(Worker& worker);
  [[nodiscard]] Status try_pass(std::size_t number);
  [[nodiscard]] Status pass(std::size_t number);
  [[nodiscard]] Status still_over(std::size_t number) const;
  [[nodiscard]] Status watch(std::size_t number);
  [[nodiscard]] Status look_only(const Round& round, std::size_t number);
  [[nodiscard]] Result<Round> begin_round(std::size_t number);
  [[nodiscard]] Status look(Round& round);
  [[nodiscard]] Status settle_seen(const Round& round, RunListing& there);
  void mend_manifests(const Round& round, const RunListing& there);
  [[nodiscard]] std::vector<Manifest> due(const Round& round) const;
  void tell_awaited(const Round& round, std::span<const Manifest> waiting) const;
  void tell(const AttemptName& name, std::size_t tier, Fate fate, std::string_view why) const;
  [[nodiscard]] Status bring_all(const Round& round, std::span<const Manifest> waiting);
  [[nodiscard]] Status bring(const Round& round, const Manifest& manifest);
  [[nodiscard]] Status copy_from_nearest(const Round& round, const Manifest& manifest,
                                         std::span<const TierSeen> tiers);
  void note_brought(std::size_t number, const Manifest& manifest);
  [[nodiscard]] Error waiting_for_others(Worker& worker, const Manifest& manifest,
                                         const Error& error) const;
  void note_unreadable(const Round& round, const Manifest& manifest,
                       std::span<const TierSeen> tried, const Error& error);
  [[nodiscard]] bool may_delete(const Round& round) const;
  void collect(const Round& round);
  void collect_near(const Round& round);
  void collect_far(const Round& round);
  void remove_partial(const Round& round, const RunListing& there);
  static void sweep(Worker& worker, const RunListing& there);
  [[nodiscard]] bool is_failing(const Worker& worker) const;
  [[nodiscard]] bool is_there_now(std::size_t number, const AttemptName& name) const;
  // By tier.
  [[nodiscard]] std::vector<std::vector<AttemptName>> held_by_each(
      const std::shared_ptr<const RunListing>& near) const;
  [[nodiscard]] std::vector<AttemptName> held_by_tiers(
      const std::shared_ptr<const RunListing>& near, bool with_committed) const;
  void note_pass(std::size_t number, std::uint64_t wakes, const Status& done);
  void end_tier(std::size_t number, const Error& error) const;
  [[nodiscard]] std::vector<TierSeen> seen(const std::shared_ptr<const RunListing>& near) const;
  [[nodiscard]] std::uint64_t wakes_of(std::size_t number) const;
  void mend_all(Vfs& near);
  [[nodiscard]] Status mend_one(const Mend& wanted, Vfs& near);
  [[nodiscard]] bool is_stopping() const { return stop_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] Status drained() const;
  [[nodiscard]] std::string behind() const;

  Settings settings_;  // its tiers have moved to the workers
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mend> mends_;                       // guarded by mutex_
  bool is_stopped_ = false;                       // guarded by mutex_
  std::vector<std::unique_ptr<Worker>> workers_;  // by tier; the vector does not change
};

}  // namespace deepfreeze
