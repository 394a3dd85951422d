// A run on one simulated disk, and a tier on another.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/run_file.h"
#include "storage/vfs_tier_store.h"
#include "support/sim_disk.h"
#include "tiering/flush.h"
#include "tiering/flush_plan.h"
#include "tiering/history_copy.h"

namespace deepfreeze {

inline std::string text_of(const Status& status) { return status ? "" : status.error().message(); }

// The claimed run of one process, whose saves are numbered.
class NearRun {
 public:
  explicit NearRun(Vfs& disk) : disk_(disk) {
    run_id_ = create_or_open_run(disk_, {}).value().run_id;
    claim({});
  }
  void claim(std::optional<Point> from) {
    generation_ = claim_generation(disk_, run_id_, from).value().generation;
  }
  Manifest save(std::uint64_t step, std::uint32_t files = 1) {
    const std::uint64_t number = ++saves_;
    Identity identity =
        make_identity(run_id_, {generation_, step, number, 0xb000 + number}, {0, 1, 0, files});
    EXPECT_TRUE(begin_attempt(disk_, name_of(identity)));
    for (; identity.part.file < files; ++identity.part.file) {
      EXPECT_TRUE(write_and_seal(disk_, identity));
    }
    identity.part.file = 0;
    return commit_attempt(disk_, make_request(identity)).value();
  }
  [[nodiscard]] const std::string& run_id() const { return run_id_; }

 private:
  Vfs& disk_;
  std::string run_id_;
  std::uint64_t generation_ = 0;
  std::uint64_t saves_ = 0;
};

// One whole flush: the history first, then the attempt.
inline Status flush_to(Vfs& near, const Manifest& manifest, TierStore& far) {
  RateLimit unlimited(0);
  const std::atomic<bool> never{false};
  DF_TRY(const RunListing listing, read_run(near));
  DF_TRY_VOID(copy_history(listing, near, far));
  return flush_attempt(near, manifest, far, {.rate = unlimited, .stop = never}, &near);
}

// "" if the tier is a whole run: it opens, and all that is committed verifies. Else the finding.
inline std::string broken_tier(Vfs& tier, const std::string& run_id) {
  const auto listing = read_run(tier);
  if (!listing) {
    return listing.error().code() == ErrorCode::kNotFound ? "" : listing.error().message();
  }
  if (listing->run.run_id != run_id) return "it is run " + listing->run.run_id;
  for (const AttemptState& attempt : listing->attempts) {
    if (attempt.fault) return attempt.fault->message();
    if (!attempt.committed()) continue;
    const Status verified = verify_attempt(tier, *attempt.manifest);
    if (!verified) return verified.error().message();
    const auto claimed =
        std::ranges::find(listing->claims, attempt.manifest->point.generation, &Claim::generation);
    if (claimed == listing->claims.end()) return "no claim of its generation is there";
    if (!claimed->record) return "the claim of its generation is torn";
  }
  return "";
}

inline bool has_committed(Vfs& tier, const Manifest& manifest) {
  const auto found = read_manifest(tier, name_of(manifest), manifest.run_id);
  return found && *found == manifest;
}

}  // namespace deepfreeze
