// Which attempts a tier waits for, and which a nearer tier may not delete yet. Pure: the state of
// a flush is the content of the tiers.
//
// Tiers are numbered from the nearest, 0. A tier waits for an attempt that is meant for it, is
// committed on a nearer tier, and would stay by the tier's own rules if it were there. So while a
// tier is down its newest attempt waits and those that its rules name; others may be left out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/options.h"
#include "manifest/run_directory.h"

namespace deepfreeze {

// One tier as it was seen last.
struct TierSeen {
  std::optional<std::uint64_t> every;  // only steps that are multiples of it are meant for the tier
  Keep keep;
  std::shared_ptr<const RunListing> listing;  // never null
};

[[nodiscard]] bool has_rule(const Keep& keep);
[[nodiscard]] AttemptName name_of(const Manifest& manifest);
[[nodiscard]] bool is_among(std::span<const AttemptName> names, const AttemptName& name);

[[nodiscard]] bool is_meant_for(const TierSeen& tier, std::uint64_t step);
[[nodiscard]] bool is_committed_in(const RunListing& listing, const AttemptName& name);

// The attempts that tier `number` waits for, newest first.
[[nodiscard]] std::vector<Manifest> waiting_for(std::span<const TierSeen> tiers,
                                                std::size_t number);

// The attempts that tier `number` must keep: a farther tier waits for them, and no tier in between
// has them.
[[nodiscard]] std::vector<AttemptName> held_on(std::span<const TierSeen> tiers, std::size_t number);

// The space of committed attempts on the first tier. `held`: those that a farther tier waits for.
struct NearUse {
  std::uint64_t bytes = 0;
  std::uint64_t held_bytes = 0;    // of those that the first tier's rules let go, and that are held
  std::uint64_t newest_bytes = 0;  // of the newest attempt
  bool operator==(const NearUse&) const = default;
};
[[nodiscard]] NearUse near_use(const RunListing& near, const Keep& keep,
                               std::span<const AttemptName> held);

}  // namespace deepfreeze
