// Steps 2 and 3 of the commit protocol: one rank's data, then its headers.
//
// Slabs are written as they are announced, in any order, a few at a time. WriteEngine makes the
// writers; each is owned by one save. push() and cancel() from any thread, finish() from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arena/image.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kSlabQueueMax = 1 << 20;  // slabs announced, not yet written

struct FileSpec {
  std::string name;                // e.g. "step-…/rank-….part"
  std::uint64_t header_bytes = 0;  // the data's place in the file: whole pages, at least one
};

struct PartSpec {
  std::vector<FileSpec> files;  // as many as the image has sections
  // Their data; its memory begins at a page, and stays while the writer is there.
  Image image;
  // Called once for each slab pushed, when its memory may be used again: the slab is written, or
  // was given up after a failure or a cancel. Any thread may call it, even inside push(); it must
  // not block long.
  std::function<void(std::size_t slab_index)> on_slab_free = {};
};

// Makes the bytes of one file's header, once all slabs are written.
using MakeHeader = std::function<Result<std::vector<std::byte>>(std::size_t file)>;

class PartFiles;

class PartWriter {
 public:
  explicit PartWriter(std::unique_ptr<PartFiles> part);
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;
  // Waits for the writes under way; a file that is not finished stays headerless. All slabs pushed
  // have been freed.
  virtual ~PartWriter();

  // Slab `index` of the image is final; each is pushed once. May wait for earlier slabs to be
  // written, never for anything else; after a failure it is given up at once.
  virtual void push(std::size_t slab_index) = 0;

  // Call once, when every slab was pushed (kInternal if one was not). Waits for their writes, then
  // for all files: exact size, sync; then for each: header, sync, close. The first error wins; the
  // files are then left as they are. If writing or syncing a header failed, that file and those
  // before it may already have their headers.
  [[nodiscard]] Status finish(const MakeHeader& make_header);

  // Gives up: no further write starts. finish() then returns kCancelled, or the error that came
  // first. Too late once the last header is on its way.
  void cancel();

  // The bytes of data and headers; at the end the sum of the files' sizes.
  [[nodiscard]] std::uint64_t bytes_written() const;
  // While at least one slab was pushed and not yet freed.
  [[nodiscard]] double write_seconds() const;

 protected:
  // Returns when all writes that push() began have ended. Destructors call it after cancel().
  virtual void join() = 0;

  const std::unique_ptr<PartFiles> part_;
};

}  // namespace deepfreeze
