// Steps 2 and 3 of the commit protocol: one rank's data, then its header.
//
// Slabs are written by a few threads as they are announced, in any order. Owned by one save;
// push() and cancel() from any thread, finish() from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/result.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::size_t kWriteThreadsMax = 16;
inline constexpr std::size_t kSlabQueueMax = 1 << 20;  // slabs announced, not yet written

struct PartPlan {
  std::string name;                 // e.g. "step-…/rank-….part"
  std::span<const std::byte> data;  // the data section; begins at a page
  std::uint64_t header_bytes = 0;   // where the data starts in the file: whole pages, at least one
  std::size_t thread_count = 2;
};

class PartWriter {
 public:
  // Creates the file, reserves its space, starts the threads. `plan.data` is borrowed until
  // finish() has returned or the writer is gone.
  [[nodiscard]] static Result<std::unique_ptr<PartWriter>> start(Vfs& vfs, PartPlan plan);
  virtual ~PartWriter() = default;  // joins the threads; what is not finished stays headerless

  // Slab `index` of the data is final; each is pushed once. Never blocks; after a failure it is
  // dropped.
  virtual void push(std::size_t slab_index) = 0;

  // Call once, when every slab was pushed (kInternal if one was not). Waits for their writes,
  // then: exact size, sync; header, sync; close. The first error wins; the file is then left as
  // it is, headerless unless writing or syncing the header itself failed.
  [[nodiscard]] virtual Status finish(
      const std::function<Result<std::vector<std::byte>>()>& make_header) = 0;

  // Gives up: no further write starts. finish() then returns kCancelled, or the error that came
  // first. Too late once the header is on its way.
  virtual void cancel() = 0;

  // Of data and header; equal to the file's size at the end.
  [[nodiscard]] virtual std::uint64_t bytes_written() const = 0;
};

}  // namespace deepfreeze
