// Reads parts of a data section, verifies every touched block, and scatters them to their
// destinations. Several threads, bounded memory. Blocking; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/result.h"
#include "device/cuda_device.h"
#include "format/layout.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::size_t kReadThreadsMax = 16;

// Bytes [source.begin, source.end) of the data section go to `into`; the sizes are equal.
struct ReadPiece {
  Extent source;
  std::span<std::byte> into;  // an address of `device`
  std::int32_t device = kHostMemory;
};

struct ReadPlan {
  std::string name;                // a sealed file
  std::uint64_t header_bytes = 0;  // whole pages
  std::uint64_t data_bytes = 0;
  std::span<const std::uint32_t> block_crcs;  // one per block; unused without `verify`
  std::vector<ReadPiece> pieces;  // any order; may share blocks; each block is read once
  bool verify = true;
  std::size_t thread_count = 2;  // the caller's is one of them
  // Called with the bytes read so far, from any of the threads, never concurrently. May be empty.
  std::function<void(std::uint64_t)> on_progress;
  CudaDevices* devices = nullptr;  // needed if a piece goes to a device; unused otherwise
};

// A block that did not verify, or could not be read.
struct BadBlock {
  std::uint64_t index = 0;
  std::string cause;
};

struct ReadOutcome {
  std::uint64_t bytes_read = 0;      // of touched blocks, as far as the file had them
  std::vector<BadBlock> bad_blocks;  // in order; empty means good. The first kBadBlocksMax.
};

inline constexpr std::size_t kBadBlocksMax = 1000;

// A bad block is not an error here: the caller knows which tensors it holds. Pieces that touch one
// are left undefined. Errors come from the plan (kInvalidArgument), from opening, from reads that
// say nothing of a block (all but kCorrupt and kIo, and refusals), from devices, and from memory:
// each thread takes at most kSlabBytes, and twice as much for a packed file, which also has its
// index in memory; an index that is bad or can't be read is an error. Bytes for a device have
// arrived there on return. They are copied without waiting for the device's other work, so the
// caller must ensure that no other work of the device uses that memory.
[[nodiscard]] Result<ReadOutcome> read_blocks(Vfs& vfs, const ReadPlan& plan);

// In two steps, for a caller with several plans for one file: they share the index of a
// packed one.
[[nodiscard]] Result<std::unique_ptr<File>> open_for_blocks(Vfs& vfs, const ReadPlan& plan);
[[nodiscard]] Result<ReadOutcome> read_blocks(File& file, const ReadPlan& plan);

}  // namespace deepfreeze
