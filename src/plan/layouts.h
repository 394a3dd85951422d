// Tables as the ranks of a job have them, for tests of plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/holders.h"

namespace deepfreeze {

using SpecTable = std::vector<TensorSpec>;

inline TensorSpec whole(std::string key, Shape shape, DType dtype = DType::kF32) {
  return {.key = std::move(key), .dtype = dtype, .shape = std::move(shape)};
}

// Rows [first, end) of a tensor of that shape.
inline TensorSpec rows(std::string key, Shape shape, std::uint64_t first, std::uint64_t end) {
  TensorSpec spec = whole(std::move(key), shape);
  spec.global_shape = std::move(shape);
  spec.box = Box{Shape(spec.global_shape.size()), spec.global_shape};
  spec.box->offset[0] = first;
  spec.box->extent[0] = end - first;
  spec.shape = spec.box->extent;
  return spec;
}

// As fully_shard() cuts the first dimension: ceil(rows / shards) each, the last ones fewer.
inline TensorSpec shard(std::string key, Shape shape, std::uint64_t index, std::uint64_t shards) {
  const std::uint64_t each = (shape[0] + shards - 1) / shards;
  const std::uint64_t first = std::min(shape[0], index * each);
  const std::uint64_t end = std::min(shape[0], first + each);
  return rows(std::move(key), std::move(shape), first, end);
}

// Owns its tables; ranks point to them.
class Job {
 public:
  explicit Job(std::size_t tables) : tables_(tables) {}
  [[nodiscard]] SpecTable& table(std::size_t i) { return tables_[i]; }
  void add_rank(std::size_t table, std::uint32_t node = 0) {
    ranks_.push_back({.tensors = &tables_[table], .node = node});
  }
  [[nodiscard]] const std::vector<RankState>& ranks() const { return ranks_; }

 private:
  std::vector<SpecTable> tables_;
  std::vector<RankState> ranks_;
};

}  // namespace deepfreeze
