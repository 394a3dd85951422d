// Saves back to back under everything that may go on at once: a trainer that changes its memory
// as soon as a fence lets it, another thread that fences, copiers of all kinds, a writer that
// frees the ring's slabs, a cancel at any moment. Each session's outcome is checked to the byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "race/errand_thread.h"
#include "race/race_geometry.h"
#include "staging/background_copier.h"
#include "staging/copier_pool.h"

namespace deepfreeze {

struct RaceCounts {
  std::uint64_t sessions = 0;
  std::uint64_t fences = 0;
  std::uint64_t pieces_taken_over = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t in_a_ring = 0;
  std::uint64_t after_update = 0;  // bound late, released group by group
  std::uint64_t unfenced = 0;      // on purpose
};

class SessionRace {
 public:
  // One of `without_fence_one_in` sessions changes its sources without a fence; 0: none does.
  explicit SessionRace(std::uint64_t without_fence_one_in = 0)
      : without_fence_one_in_(without_fence_one_in) {}

  // Some sessions over one geometry, all chosen by the seed. Returns the first session's fault, if
  // any; of the unfenced ones it only counts how many were found out.
  [[nodiscard]] std::optional<std::string> round(std::uint64_t seed);

  [[nodiscard]] const RaceCounts& counts() const { return counts_; }
  [[nodiscard]] std::uint64_t unfenced_found_out() const { return unfenced_found_out_; }

 private:
  friend class RacedSession;

  const std::uint64_t without_fence_one_in_;
  RaceCounts counts_;
  std::uint64_t unfenced_found_out_ = 0;
  CopierPool pool_{2};
  BackgroundCopier one_;  // a session may be served by both
  BackgroundCopier another_;
  ErrandThread other_;   // fences, helps, cancels
  ErrandThread writer_;  // of a ring
};

}  // namespace deepfreeze
