#include "support/state_of_step.h"

#include <fmt/format.h>

#include <random>

namespace deepfreeze {
namespace {

constexpr std::size_t kTensorsMax = 6;
constexpr std::size_t kSmallWordsMax = 2'000;
constexpr std::size_t kLargeWords = 800'000;      // more than a slab
constexpr std::uint64_t kLargeEvery = 7;          // steps
constexpr std::uint64_t kFarApart = 1ULL << 32U;  // seeds of two tensors

// Steps of a cycle: the first ones have other tensors each, the others the same ones.
constexpr std::uint64_t kCycleSteps = 32;
constexpr std::uint64_t kFrozenChangesAt =
    24;  // the first tensor, in which only steady steps agree
constexpr std::size_t kFrozenWordsMin = 2'000;
constexpr std::uint64_t kLargeCycles = 3;

bool is_steady(std::uint64_t step) { return step % kCycleSteps >= kSteadyFrom; }
std::uint64_t cycle_begin(std::uint64_t step) { return step / kCycleSteps * kCycleSteps; }

std::uint64_t frozen_since(std::uint64_t step) {
  if (!is_steady(step)) return step;
  return cycle_begin(step) +
         (step % kCycleSteps < kFrozenChangesAt ? kSteadyFrom : kFrozenChangesAt);
}

bool is_large(std::uint64_t step) {
  return is_steady(step) ? step / kCycleSteps % kLargeCycles == 1 : step % kLargeEvery == 0;
}

std::vector<std::size_t> sizes_at(std::uint64_t step) {
  std::mt19937_64 random(is_steady(step) ? cycle_begin(step) + kSteadyFrom : step);
  std::vector<std::size_t> sizes(1 + random() % kTensorsMax);
  for (std::size_t& size : sizes) size = random() % kSmallWordsMax;
  if (is_steady(step)) sizes.front() += kFrozenWordsMin;
  if (is_large(step)) sizes.front() = kLargeWords + random() % kSmallWordsMax;
  return sizes;
}

std::string key_of(std::size_t tensor) { return fmt::format("tensor.{}", tensor); }

std::span<const std::byte> bytes_of(const std::vector<std::uint64_t>& words) {
  return std::as_bytes(std::span(words));
}

}  // namespace

StateOfStep::StateOfStep(std::uint64_t step) : step_(step) {
  for (const std::size_t size : sizes_at(step)) {
    std::mt19937_64 random(tensors_.empty() ? frozen_since(step)
                                            : step + tensors_.size() * kFarApart);
    std::vector<std::uint64_t>& words = tensors_.emplace_back(size);
    for (std::uint64_t& word : words) word = random();
  }
}

TensorTable StateOfStep::table() const {
  TensorTable table;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    table.push_back(
        {.spec = {.key = key_of(i), .dtype = DType::kU64, .shape = {tensors_[i].size()}},
         .data = bytes_of(tensors_[i])});
  }
  return table;
}

std::string StateOfStep::objects() const { return fmt::format(R"({{"step":{}}})", step_); }

Difference StateOfStep::difference(const OpenCheckpoint& checkpoint) const {
  if (checkpoint.objects() != objects()) return {.what = "objects " + checkpoint.objects()};
  if (checkpoint.tensors().size() != tensors_.size()) return {.what = "other tensors"};
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<std::uint64_t> found(tensors_[i].size());
    const RestoreTarget target{key_of(i), std::as_writable_bytes(std::span(found))};
    const Status read = checkpoint.read(std::span(&target, 1));
    if (!read) return {.refused = true, .what = read.error().message()};
    if (found != tensors_[i]) return {.what = "other bytes in " + key_of(i)};
  }
  return {};
}

}  // namespace deepfreeze
