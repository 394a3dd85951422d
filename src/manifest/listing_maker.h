// Builds listings in memory, for tests of pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "manifest/run_directory.h"

namespace deepfreeze {

// Attempts get the id generation * 10000 + step, so that a test can name them.
inline Point make_point(std::uint64_t generation, std::uint64_t step) {
  return {.generation = generation,
          .step = step,
          .save_index = step,
          .attempt_id = generation * 10000 + step};
}

class ListingMaker {
 public:
  ListingMaker& commit(std::uint64_t generation, std::uint64_t step) {
    return add(generation, step, Outcome::kCommitted);
  }
  ListingMaker& commit(std::uint64_t generation, std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t step = first; step <= last; ++step) commit(generation, step);
    return *this;
  }
  ListingMaker& abort(std::uint64_t generation, std::uint64_t step) {
    return add(generation, step, Outcome::kAborted);
  }
  ListingMaker& metric(const std::string& name, double value) {  // of the last commit
    listing_.attempts.back().manifest->annotations.metrics[name] = value;
    return *this;
  }
  ListingMaker& non_finite(std::uint64_t values) {  // of the last commit
    listing_.attempts.back().manifest->non_finite = values;
    return *this;
  }
  ListingMaker& given(Tags tags) {  // to the last commit
    listing_.attempts.back().given = GivenTags{.number = 1, .tags = std::move(tags), .fault = {}};
    return *this;
  }
  ListingMaker& tags_lost() {  // of the last commit
    listing_.attempts.back().given =
        GivenTags{.number = 1, .tags = {}, .fault = Error(ErrorCode::kCorrupt, "torn")};
    return *this;
  }
  ListingMaker& undecided(std::uint64_t step) {
    listing_.attempts.push_back({.name = {step, step}, .manifest = {}, .fault = {}});
    return *this;
  }
  // Sealed here, and decided by another directory; this one has digits of its own.
  ListingMaker& in_doubt(std::uint64_t generation, std::uint64_t step) {
    const Point point = make_point(generation, step);
    AttemptState state{.name = {step, point.attempt_id}, .manifest = {}, .fault = {}};
    state.has_sealed = true;
    state.doubt = Doubt{.identity = Identity{.run_id = {},
                                             .attempt_id = point.attempt_id,
                                             .generation = generation,
                                             .step = step,
                                             .save_index = step,
                                             .part = {}},
                        .node = 0xa};
    listing_.attempts.push_back(std::move(state));
    listing_.node = NodeMarker{.record = NodeRecord{.node = 0xb, .host = "h"}};
    return *this;
  }
  ListingMaker& without_digits() {
    listing_.node.reset();
    return *this;
  }
  ListingMaker& bad(std::uint64_t step) {
    listing_.attempts.push_back(
        {.name = {step, step}, .manifest = {}, .fault = Error(ErrorCode::kCorrupt, "torn")});
    return *this;
  }
  ListingMaker& claim(std::uint64_t generation, std::optional<Point> resumed_from) {
    GenerationRecord record;
    record.generation = generation;
    record.resumed_from = resumed_from;
    listing_.claims.push_back({.generation = generation, .record = record});
    return *this;
  }
  ListingMaker& rule(const Keep& keep) {  // of the last claim
    listing_.claims.back().record->keep = keep;
    return *this;
  }
  ListingMaker& lost_claim(std::uint64_t generation) {
    listing_.claims.push_back({.generation = generation, .record = {}});
    return *this;
  }
  [[nodiscard]] const RunListing& listing() const { return listing_; }

 private:
  ListingMaker& add(std::uint64_t generation, std::uint64_t step, Outcome outcome) {
    Manifest manifest;
    manifest.outcome = outcome;
    manifest.point = make_point(generation, step);
    const AttemptName name{step, manifest.point.attempt_id};
    listing_.attempts.push_back({.name = name, .manifest = manifest, .fault = {}});
    return *this;
  }

  RunListing listing_;
};

}  // namespace deepfreeze
