// Live tensors that entries of a checkpoint can be read straight into: whole, in host memory, of
// the stored form. With the GIL. Numbers only: whoever reads keeps the tensors, and their memory.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "deepfreeze/checkpointer.h"
#include "torch_tensors.h"

namespace deepfreeze::python {

// Bytes from `begin` to before `end`.
struct MemorySpan {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

class Homes {
 public:
  // `keys`: the entry for each of `tensors`, which are torch.Tensors.
  Homes(const OpenCheckpoint& checkpoint, const nanobind::list& keys,
        const nanobind::list& tensors);

  // The places in the list of those tensors that have no home here, and need a closer look.
  [[nodiscard]] const std::vector<std::size_t>& others() const { return others_; }
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::vector<std::uintptr_t> addresses() const;
  [[nodiscard]] std::vector<RestoreTarget> targets() const;

  // Whether no memory of `all` is used twice, nor by `others`.
  static bool are_apart(std::span<const Homes* const> all, std::vector<MemorySpan> others);

 private:
  struct Home {
    const TensorSpec* entry = nullptr;  // of the checkpoint
    MemorySpan memory;
    bool operator==(const Home& other) const {
      return entry == other.entry && memory.begin == other.memory.begin;
    }
  };
  class Look;

  OpenCheckpoint checkpoint_;
  std::vector<Home> homes_;  // by address; tensors that share all their memory have one
  std::vector<std::size_t> others_;
};

}  // namespace deepfreeze::python
