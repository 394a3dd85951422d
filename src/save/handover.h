// All that another process needs to finish this one's save, kept up to date in memory that it can
// read: so a captured save outlives its trainer. The bytes of the tensors lie in the arena, which
// is shared, too.
//
// The state is one word that is written last; a process that is killed in between leaves the state
// before. The reader looks only once the writer is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/shard_header.h"
#include "ipc/memory_file.h"
#include "save/save_plan.h"

namespace deepfreeze {

enum class HandoverState : std::uint32_t {
  kNone,      // no save is under way, or it has settled
  kPlanned,   // its tensors are being copied
  kCaptured,  // all of its bytes are in the arena, until its first file has its final name
};

// The writer's side, for one save at a time.
class Handover {
 public:
  // kNoSpace if the system refuses the memory.
  [[nodiscard]] static Result<std::unique_ptr<Handover>> make();
  explicit Handover(std::unique_ptr<MemoryFile> file) : file_(std::move(file)) {}

  // These follow each other in time, from whichever threads. After an error the save goes on, and
  // nobody could finish it: the calls that follow do nothing.
  [[nodiscard]] Status plan(const SavePlan& plan, std::chrono::milliseconds commit_wait_max);
  [[nodiscard]] Status captured(std::span<const std::uint32_t> block_crcs);
  void over();

  [[nodiscard]] int fd() const { return file_->fd(); }  // for the other process

 private:
  void set(HandoverState state) const;

  const std::unique_ptr<MemoryFile> file_;
  bool is_planned_ = false;
  std::uint64_t crcs_at_ = 0;
};

// The reader's side: a save as its trainer left it.
struct LeftFile {
  std::uint64_t header_bytes = 0;
  Section section;     // of the image in the arena
  ShardHeader header;  // without checksums and ranges
};

struct LeftAudit {
  std::uint64_t offset = 0;  // in the image
  std::uint64_t bytes = 0;
};

struct LeftSave {
  HandoverState state = HandoverState::kNone;  // kNone: all below is empty
  std::vector<LeftFile> files;
  std::vector<LeftAudit> audit;  // of the records in the first header, in their order
  std::vector<Section> audit_sections;
  std::chrono::milliseconds commit_wait_max{0};
  std::vector<std::uint32_t> block_crcs;  // from kCaptured on
};

// kCorrupt, kUnsupported: it was not written by Handover, or by one of another version.
[[nodiscard]] Result<LeftSave> read_handover(int fd);

}  // namespace deepfreeze
