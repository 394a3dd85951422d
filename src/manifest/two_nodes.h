// Two near directories of one run, for tests: the one of rank 0's node decides, the other has a
// part of rank 1. Claims of both are the same bytes, as C2 of decision 0026 leaves them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "crash/attempt_maker.h"
#include "format/node_record.h"
#include "manifest/claims.h"
#include "manifest/run_directory.h"
#include "support/sim_disk.h"

namespace deepfreeze {

class TwoNodes {
 public:
  static constexpr std::uint64_t kDecider = 0xa1;
  static constexpr std::uint64_t kOther = 0xb2;

  TwoNodes() {
    const auto made = create_or_open_run(decider, {});
    EXPECT_TRUE(made);
    run_id = made->run_id;
    other.plant(kRunFile, encode_run(*made));
    decider.plant(kNodeFile, encode_node({.node = kDecider, .host = "host0"}));
    other.plant(kNodeFile, encode_node({.node = kOther, .host = "host1"}));
  }

  // The next generation, on both; `node` decides its attempts.
  std::uint64_t claim(std::optional<std::uint64_t> node = kDecider,
                      std::optional<Point> from = {}) {
    GenerationRecord record{.run_id = run_id, .generation = ++generation, .claimant = generation};
    record.resumed_from = from;
    record.node = node;
    for (SimDisk* disk : {&decider, &other}) {
      disk->plant(generation_file_name(generation), encode_generation(record));
    }
    return generation;
  }

  [[nodiscard]] Identity identity(std::uint64_t step, std::uint32_t rank) const {
    return make_identity(run_id, {generation, step, step, step}, {rank, 2, 0, 1});
  }

  // Steps 1 to 4 of one rank, in its node's directory.
  void seal(std::uint64_t step, std::uint32_t rank) {
    SimDisk& disk = rank == 0 ? decider : other;
    const Identity own = identity(step, rank);
    EXPECT_TRUE(begin_attempt(disk, name_of(own)));
    EXPECT_TRUE(write_and_seal(disk, own));
  }
  void seal(std::uint64_t step) {
    seal(step, 0);
    seal(step, 1);
  }

  // The manifest of both parts.
  [[nodiscard]] std::string committed_text(std::uint64_t step) const {
    SimDisk whole;
    EXPECT_TRUE(begin_attempt(whole, name_of(identity(step, 0))));
    for (const std::uint32_t rank : {0U, 1U}) {
      EXPECT_TRUE(write_and_seal(whole, identity(step, rank)));
    }
    EXPECT_TRUE(commit_attempt(whole, make_request(identity(step, 0))));
    return whole.contents(manifest_of(step)).value();
  }
  void commit_on_decider(std::uint64_t step) {
    decider.plant(manifest_of(step), committed_text(step));
  }
  [[nodiscard]] static std::string manifest_of(std::uint64_t step) {
    return attempt_dir_name({step, step}) + "/" + std::string(kManifestFile);
  }

  SimDisk decider;
  SimDisk other;
  std::string run_id;
  std::uint64_t generation = 0;
};

}  // namespace deepfreeze
