// One session:
//   1. Begin:  all groups are released at once, or, after_update, bound and released one by one.
//   2. Window: copiers are called; the other thread fences, helps or cancels.
//   3. Fences: in random order; behind each the trainer writes the next step at once.
//   4. End:    wait, then compare image, checksums, slabs and torn items with the step's own.
// A cancelled session is only asked to leave sources and image alone: both are overwritten.
#include "race/session_race.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

namespace deepfreeze {

namespace {

constexpr std::uint64_t kSessionsPerRound = 8;
constexpr std::uint64_t kStrangeStep = kStepsMax - 1;  // no image may ever hold it

bool same(std::span<const std::byte> one, std::span<const std::byte> other) {
  return std::memcmp(one.data(), other.data(), one.size()) == 0;
}

void overwrite(std::span<std::byte> place) {
  std::memcpy(place.data(), bytes_of(kStrangeStep).data(), place.size());
}

std::vector<std::uint32_t> shuffled(std::uint32_t group_count, Random& random) {
  std::vector<std::uint32_t> groups(group_count);
  std::iota(groups.begin(), groups.end(), 0U);
  std::ranges::shuffle(groups, random);
  return groups;
}

// The state that a round's sessions share.
struct Round {
  Round(RaceGeometry chosen, Random& random)
      : geometry(chosen), trainer(geometry, random), memory(geometry.memory_bytes()) {}
  RaceGeometry geometry;
  TrainerMemory trainer;
  std::vector<std::byte> memory;  // of the image
};

}  // namespace

class RacedSession {
 public:
  RacedSession(SessionRace& race, Round& round, std::uint64_t step, Random& random)
      : race_(race),
        round_(round),
        step_(step),
        random_(random),
        delay_seed_(random()),
        cancels_(random() % 12 == 0),
        after_update_(random() % 3 == 0 && round.geometry.ring_slabs == 0),
        fenced_(race.without_fence_one_in_ == 0 || random() % race.without_fence_one_in_ != 0),
        image_(round.memory, round.geometry.image_bytes, round.geometry.slab_bytes),
        announced_(image_.slab_count()),
        slabs_(std::max<std::uint64_t>(1, image_.slab_count())),
        session_(spec()) {}

  std::optional<std::string> run() {
    count();
    if (image_.is_ring()) race_.writer_.run([this] { write_slabs(); });
    if (after_update_) {
      release_one_by_one();
    } else {
      session_.release_all();
    }
    run_window();
    finish();
    race_.counts_.pieces_taken_over += session_.times().pieces_taken_over;
    return judged();
  }

 private:
  // The checks' findings need no lock: they are atomics, read after errands were joined.
  CaptureSpec spec() {
    CaptureSpec spec = {.image = image_,
                        .block_bytes = round_.geometry.block_bytes,
                        .items = round_.trainer.items(),
                        .on_slab = [this](std::size_t slab) { announce(slab); },
                        .on_done = [this] { end(); },
                        .witness_seed = delay_seed_,
                        .paranoid = delay_seed_ % 5 == 0};
    if (!after_update_) return spec;
    for (CaptureItem& item : spec.items) {
      item.source = {static_cast<const std::byte*>(nullptr), item.source.size()};
    }
    return spec;
  }

  void count() {
    ++race_.counts_.sessions;
    race_.counts_.cancelled += cancels_ ? 1 : 0;
    race_.counts_.in_a_ring += image_.is_ring() ? 1 : 0;
    race_.counts_.after_update += after_update_ ? 1 : 0;
    race_.counts_.unfenced += fenced_ ? 0 : 1;
  }

  void announce(std::size_t slab) {
    jitter(delay_seed_ * (slab + 1));
    ++announced_[slab];
    if (image_.is_ring()) {
      slabs_.push(slab);
    } else if (!is_right(slab)) {
      wrong_slab_ = true;
    }
  }
  void end() {
    jitter(delay_seed_ >> 7);
    if (++times_done_ > 1 || cancel_returned_) wrong_end_ = true;
  }
  [[nodiscard]] bool is_right(std::size_t slab) const {
    const auto begin = slab * round_.geometry.slab_bytes;
    const auto bytes = image_.slab(slab);
    return same(bytes, bytes_of(step_).subspan(begin, bytes.size()));
  }
  [[nodiscard]] bool is_step(std::span<const std::byte> image) const {
    return same(image, bytes_of(step_).first(image.size()));
  }
  // The writer's thread.
  void write_slabs() {
    while (const auto slab = slabs_.pop()) {
      jitter(delay_seed_ * (*slab + 3));
      if (!is_right(*slab)) wrong_slab_ = true;
      const auto place = image_.slab(*slab);
      overwrite(place);  // it is the writer's until freed
      session_.free_slab(*slab);
    }
  }

  // Step 1, after the update of each group; the fence of a group that is not released is free.
  void release_one_by_one() {
    const std::uint32_t group_count = session_.group_count();
    for (std::uint32_t group = 1; group < group_count; ++group) {
      round_.trainer.write(group, kStrangeStep);
    }
    for (const std::uint32_t group : shuffled(group_count, random_)) {
      if (group == kUnguarded) continue;
      fence(group);
      round_.trainer.write(group, step_);
      bind(group);
      session_.release(group);
      if (random_() % 2 == 0) serve();
      jitter(random_());
    }
    if (!session_.unchanged()) false_alarm_ = true;
    bind(kUnguarded);
    session_.release_all();
  }
  void bind(std::uint32_t group) {
    const auto& items = round_.trainer.items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].guard == group) session_.bind(i, items[i].source.data());
    }
  }
  void serve() {
    if (random_() % 2 == 0) race_.one_.serve(session_);
    if (random_() % 2 == 0) race_.another_.serve(session_);
  }

  // Steps 2 and 3.
  void run_window() {
    const std::uint32_t group_count = session_.group_count();
    if (fenced_ && random_() % 4 != 0) {
      race_.pool_.run(session_, kUnguarded);
      round_.trainer.write(kUnguarded, step_ + 1);
      ++race_.counts_.fences;
    }
    serve();
    if (random_() % 2 == 0) wait_for_a_copier();
    send_other(group_count);
    const std::uint64_t cancel_at = cancels_ ? random_() % (2 * group_count) : ~std::uint64_t{0};
    std::uint64_t passed = 0;
    for (const std::uint32_t group : order()) {
      jitter(random_());
      if (passed++ == cancel_at) cancel();
      if (fenced_) fence(group);
      round_.trainer.write(group, step_ + 1);
    }
    if (cancels_) cancel();
    session_.fence_all();  // for the groups left unfenced on purpose
  }
  // So that a fence meets copiers at work: else it would often do all before they wake. They
  // take group after group; ours is the first that they have not finished.
  void wait_for_a_copier() {
    std::uint32_t group = 0;
    while (group + 1 < session_.group_count() && session_.pieces_unread(group) == 0) ++group;
    const std::uint64_t before = session_.pieces_unread(group);
    for (int turn = 0; turn < 400 && session_.pieces_unread(group) == before; ++turn) {
      turn % 64 == 63 ? std::this_thread::yield() : spin(200);
    }
  }
  // The order of the fences: any, or the copiers' own.
  std::vector<std::uint32_t> order() {
    std::vector<std::uint32_t> groups = shuffled(session_.group_count(), random_);
    if (random_() % 2 == 0) std::ranges::sort(groups);
    return groups;
  }
  void fence(std::uint32_t group) {
    ++race_.counts_.fences;
    if (random_() % 4 == 0) return race_.pool_.run(session_, group);
    session_.fence(group);
  }
  void cancel() {
    session_.cancel();
    cancel_returned_ = !session_.done();
  }

  void send_other(std::uint32_t group_count) {
    const std::uint64_t choice = random_();
    const auto group = static_cast<std::uint32_t>(choice / 16 % group_count);
    switch (choice % 16) {
      case 0:
      case 1:
        return race_.other_.run([this, group] { session_.fence(group); });
      case 2:
        return race_.other_.run([this] { session_.help(); });
      case 3:
        return race_.other_.run([this] { session_.help_in_background(); });
      case 4:
        if (!cancels_) return;
        return race_.other_.run([this, choice] {
          jitter(choice >> 9);
          session_.cancel();
        });
      default:
        return;
    }
  }

  // Step 4.
  void finish() {
    session_.wait();
    slabs_.close();
    race_.writer_.wait();  // it reads the ring, and it alone may by now
    if (cancels_) overwrite(round_.memory);
    race_.other_.wait();
  }

  [[nodiscard]] std::optional<std::string> judged() {
    const auto fault = first_fault();
    if (fenced_) return fault;
    race_.unfenced_found_out_ += fault ? 1 : 0;
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::string> first_fault() {
    if (!session_.finished()) return "not finished";
    if (wrong_end_) return "on_done came twice, or after cancel()";
    if (wrong_slab_) return "a slab was announced with wrong bytes";
    if (false_alarm_) return "unchanged() saw a change that was none";
    if (!session_.torn_items().empty()) return "torn, though nothing changed before its fence";
    if (!session_.done()) return cancels_ ? std::nullopt : std::optional("not done");
    if (times_done_ != 1) return "done, and on_done was not called";
    if (!std::ranges::all_of(announced_, [](const auto& times) { return times == 1; })) {
      return "a slab was not announced once";
    }
    if (!std::ranges::equal(session_.block_crcs(), block_crcs(round_.geometry, step_)))
      return "wrong checksums";
    if (!cancels_ && !image_.is_ring() && !is_step(round_.memory)) return "wrong image";
    return std::nullopt;
  }

  SessionRace& race_;
  Round& round_;
  const std::uint64_t step_;
  Random& random_;  // the trainer's
  const std::uint64_t delay_seed_;
  const bool cancels_;
  const bool after_update_;
  const bool fenced_;
  const Image image_;
  std::vector<std::atomic<int>> announced_;
  BoundedQueue<std::size_t> slabs_;
  std::atomic<int> times_done_{0};
  std::atomic<bool> cancel_returned_{false};
  std::atomic<bool> wrong_end_{false};
  std::atomic<bool> wrong_slab_{false};
  bool false_alarm_ = false;
  CaptureSession session_;
};

std::optional<std::string> SessionRace::round(std::uint64_t seed) {
  Random random(seed);
  Round round(RaceGeometry::choose(random), random);
  for (std::uint32_t group = 0; group <= round.geometry.guards; ++group) {
    round.trainer.write(group, 0);
  }
  for (std::uint64_t step = 0; step < kSessionsPerRound; ++step) {
    if (auto fault = RacedSession(*this, round, step, random).run()) {
      return "seed " + std::to_string(seed) + ", session " + std::to_string(step) + ": " + *fault;
    }
  }
  return std::nullopt;
}

}  // namespace deepfreeze
