// Brings a run's committed attempts to its farther tiers, newest first, with one thread for each
// tier. It keeps no state that matters: what is to be done next is a function of what lies on the
// tiers (flush_plan.h), so that another process can go on at any moment.
//
// A tier that fails is tried again, after pauses that grow; it is logged once. Functions are for
// any thread; the callbacks of Settings run on the flusher's threads, without its lock, and must
// not call stop() or drain().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "storage/tier_store.h"
#include "storage/vfs_tier_store.h"
#include "tiering/flush_plan.h"

namespace deepfreeze {

inline constexpr std::chrono::milliseconds kFlushPauseMin{100};
inline constexpr std::chrono::milliseconds kFlushPauseMax{30'000};
inline constexpr std::chrono::milliseconds kWatchPause{200};

struct FarTier {
  std::string place;  // as the user gave it
  std::unique_ptr<TierStore> store;
  std::optional<std::uint64_t> every;
  Keep keep;
  std::uint64_t bytes_per_second = 0;  // 0: no limit
};

// The state of one tier, for display.
struct TierReport {
  std::string place;
  std::size_t waiting = 0;             // attempts
  std::optional<AttemptName> copying;  // now
  std::uint64_t bytes_sent = 0;        // of that attempt
  std::uint64_t bytes_total = 0;       // by this process
  std::uint64_t committed = 0;         // attempts, by this process
  std::uint64_t left_out = 0;          // attempts that were deleted before they could be sent
  std::uint64_t failures = 0;
  std::optional<Error> error;  // of the last try, if it failed
  bool is_over = false;        // another process continues the run there: no more tries
};

// A bad copy of a file, on a tier counted from the nearest, 0.
struct Mend {
  Manifest manifest;
  ManifestFile file;
  std::size_t bad = 0;
};
inline constexpr std::size_t kMendsMax = 1000;

class Flusher {
 public:
  struct Settings {
    Vfs& near;  // the first tier; outlives the flusher
    std::vector<FarTier> tiers;
    // An attempt is committed on tiers[tier].
    std::function<void(const AttemptName& name, std::size_t tier)> on_committed;
    // For a rank that does not commit: nothing is copied, but looked for on tiers[tier] as long as
    // this is true. Empty for the rank that commits.
    std::function<bool(std::size_t tier)> is_awaited = {};
  };
  explicit Flusher(Settings settings);
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;
  ~Flusher() { stop(); }

  // There may be something to do: an attempt was committed, or a claim made.
  void wake();
  // Returns once no tier waits for anything. kTimeout names the tiers that still do, and why; other
  // errors are those of a tier that is not tried any more. A tier that fails is tried again until
  // the timeout, or not at all.
  enum class OnFailure : std::uint8_t { kTryAgain, kGiveUp };
  [[nodiscard]] Status drain(std::chrono::milliseconds timeout,
                             OnFailure on_failure = OnFailure::kTryAgain);
  // Ends the copies that are under way, which a later flusher completes, and joins the threads.
  void stop();

  // Replaces the bad copy by a good one of another tier, in the first tier's thread.
  void mend(Mend wanted);

  // The attempts of a listing of the first tier that farther tiers wait for.
  [[nodiscard]] std::vector<AttemptName> held(const RunListing& near) const;
  // These were deleted from the first tier.
  void note_deleted(std::span<const AttemptName> names);
  [[nodiscard]] std::vector<TierReport> reports() const;

 private:
  struct Worker {
    explicit Worker(FarTier far) : tier(std::move(far)), rate(tier.bytes_per_second) {}
    FarTier tier;
    RateLimit rate;
    std::vector<AttemptName> unreadable;  // its own thread's: their nearer copies do not verify

    // The rest is guarded by mutex_.
    TierReport report;
    RunListing listing;       // of the tier, when it was seen last
    bool has_work = true;     // until a pass has found nothing to do
    std::uint64_t wakes = 0;  // so far
    Monotonic::time_point next_try{};
    std::chrono::milliseconds pause = kFlushPauseMin;
    std::thread thread;
  };

  void work(std::size_t number);
  [[nodiscard]] bool await_work(Worker& worker);
  [[nodiscard]] Status pass(std::size_t number);
  [[nodiscard]] Status bring(std::size_t number, const RunListing& near, const Manifest& manifest);
  [[nodiscard]] Status copy_from_nearest(std::size_t number, const RunListing& near,
                                         const Manifest& manifest);
  void mend_all();
  [[nodiscard]] Status mend_one(const Mend& wanted);
  [[nodiscard]] Vfs& view(std::size_t tier);
  [[nodiscard]] TierStore& store(std::size_t tier);
  void collect(std::size_t number, const RunListing& near);
  void note_pass(Worker& worker, std::uint64_t wakes, const Status& done);
  [[nodiscard]] std::vector<TierSeen> seen(const RunListing& near) const;
  [[nodiscard]] Status watch(std::size_t number);
  [[nodiscard]] bool is_drained() const;
  [[nodiscard]] std::string behind() const;
  [[nodiscard]] Status drained() const;

  Vfs& near_;
  VfsTierStore near_store_;
  const std::function<void(const AttemptName&, std::size_t)> on_committed_;
  const std::function<bool(std::size_t)> is_awaited_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mend> mends_;                       // guarded by mutex_
  std::vector<std::unique_ptr<Worker>> workers_;  // by tier; the vector does not change
};

}  // namespace deepfreeze
