// States to measure with. Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deepfreeze/checkpointer.h"
#include "format/shard_header.h"

namespace deepfreeze {

struct Sample {
  std::vector<std::byte> memory;  // that of the tensors, in their order, every page touched
  SaveRequest request;            // its objects have a node for every tensor
};

inline constexpr std::size_t kResNet50Tensors = 803;

// kResNet50Tensors: ResNet-50 and its Adam state, 307 MB. Any other count: tensors of 4 to 4096
// bytes in turn, so that the cost of each tensor shows.
[[nodiscard]] Sample sample_of(std::size_t tensor_count);

// Tensors of one size.
[[nodiscard]] Sample equal_sample(std::size_t tensor_count, std::uint64_t bytes_of_each);

[[nodiscard]] Identity sample_identity();

}  // namespace deepfreeze
