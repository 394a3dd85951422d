// A checkpoint made whole from directories that have a part of it each: those of the nodes that are
// left, and farther tiers (docs/nodes.md). Blocking; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "manifest/run_directory.h"
#include "restore/opened_run.h"
#include "storage/tier_store.h"
#include "tiering/copy_file.h"

namespace deepfreeze {

class LeftPlaces {
 public:
  // A file of the checkpoint, and the place that it was copied from.
  struct Copied {
    std::string file;
    std::uint64_t bytes = 0;
    std::string place;           // empty: it was there already
    bool is_calculated = false;  // from parity
  };

  // `paths` is not empty. kNotFound: one of them holds no run. kMismatch: they hold different ones.
  [[nodiscard]] static Result<LeftPlaces> open(std::span<const std::string> paths);

  // Of all places together.
  [[nodiscard]] const RunListing& listing() const { return listing_; }

  // Copies the run's record and all claims. kMismatch: `to` holds another run.
  [[nodiscard]] Status copy_claims(TierStore& to) const;
  // The checkpoint is committed on `to` once this succeeds: each file from the first place that has
  // it whole, every block verified on the way, or else calculated from the others and from parity.
  // kIncomplete: a file can't be had; the message says what is wrong in each place, and `to` has no
  // file of the checkpoint that it did not have before. Other codes: a place may have it, or `to`
  // fails.
  [[nodiscard]] Result<std::vector<Copied>> rebuild(const Manifest& manifest, TierStore& to,
                                                    const CopySettings& settings) const;

 private:
  struct Pieces;
  explicit LeftPlaces(std::vector<OpenedRun> places);
  [[nodiscard]] Pieces find_pieces(const Manifest& manifest) const;
  [[nodiscard]] Result<std::vector<Copied>> bring_files(const Pieces& pieces,
                                                        const Manifest& manifest, TierStore& to,
                                                        const CopySettings& settings) const;
  [[nodiscard]] Status commit(const Manifest& manifest, TierStore& to,
                              const CopySettings& settings) const;

  std::vector<OpenedRun> places_;
  RunListing listing_;
};

}  // namespace deepfreeze
