// Finishes a save whose trainer is gone, with the steps and checks of its own engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "pipeline/write_engine.h"
#include "save/commit_with_nodes.h"
#include "save/handover.h"
#include "storage/vfs.h"

namespace deepfreeze {

enum class LeftOutcome : std::uint8_t {
  kNothing,    // no save was under way
  kDropped,    // it was not captured: it is given up, as after a failure
  kSealed,     // this rank's part is written; another process commits, or the next claim decides
  kCommitted,  // it is durable
};

[[nodiscard]] std::string_view to_string(LeftOutcome outcome);

// The rest of the job, from a successor's view.
struct Others {
  // Somebody waits for the save to be finished. Parts of other ranks are then waited for only as
  // long as something changes among them.
  std::function<bool()> wait = [] { return false; };
  std::chrono::milliseconds quiet_max{std::chrono::seconds(10)};
  // Ranks see directories of their own, so nobody commits by this one alone: the leader of a node
  // does with the others (decision 0026). Empty for other ranks, and for a leader without its link.
  bool is_on_nodes = false;
  CommitNode commit_node = {};
};

// `arena`: the memory that the save was captured into. Every block is compared with the checksum
// that its capture took before it is written: a stray write that ended the trainer may have hit it.
// kFenced: another process has taken the run over. kCorrupt: the memory has changed since its
// capture, and the save is given up. Nobody may use the arena meanwhile, and the trainer
// must be gone: its files that are not sealed are written anew.
[[nodiscard]] Result<LeftOutcome> finish_left_save(Vfs& vfs, const LeftSave& left,
                                                   std::span<std::byte> arena,
                                                   WriteEngine& write_engine,
                                                   const Others& others = {});

}  // namespace deepfreeze
