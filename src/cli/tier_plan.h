// deepfreeze tiers --plan: the options that describe a tier, and its bill. Read-only.
#pragma once

#include <string>

#include "cli/arguments.h"
#include "cli/console.h"
#include "deepfreeze/result.h"
#include "tiering/tier_cost.h"

namespace deepfreeze {

// Examples, and not today's: docs/operations.md names their source.
inline constexpr TierPrices kExamplePrices{
    .gb_month = 0.023, .thousand_puts = 0.005, .thousand_gets = 0.0004};

struct PlanArguments {
  bool plan = false;
  TierUse use{.checkpoint_bytes = 0, .files = 0};  // 0: those of the run's newest checkpoint
  std::uint64_t months = 12;
  TierPrices prices = kExamplePrices;
};

void add_plan_options(Verb& verb, PlanArguments& arguments);

// `run` may be empty if the arguments tell the size of a checkpoint.
[[nodiscard]] Result<ExitCode> plan_tier(const std::string& run, PlanArguments arguments,
                                         Console& console);

}  // namespace deepfreeze
