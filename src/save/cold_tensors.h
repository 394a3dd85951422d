// Chooses the tensors that go into a rank's cold file, by how long each has not changed. Arithmetic
// only; used by one save at a time.
//
// A tensor is cold after some saves in which it did not change, and hot again at once when it
// does. The layout changes seldom, because after a change every byte is written once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace deepfreeze {

struct ColdRules {
  std::uint32_t unchanged_saves_min = 2;
  // Cold tensors have a file of their own if they are at least so many bytes, and this share of
  // all; a larger set replaces a smaller one by the same rule.
  std::uint64_t bytes_min = 16'000'000;
  double share_min = 0.1;
  std::uint32_t saves_between_min = 50;  // changes of the layout, but for tensors that wake
};

// One tensor in one save, compared with the save before.
struct TensorChange {
  std::uint64_t bytes = 0;
  bool has_changed = true;
};

class ColdTensors {
 public:
  explicit ColdTensors(ColdRules rules = {}) : rules_(rules) {}

  // After a save that was compared with the one before. Another number of tensors begins anew.
  void note(std::span<const TensorChange> tensors);

  // The choice for the next save, by tensor; empty: none is cold.
  [[nodiscard]] const std::vector<bool>& cold() const { return cold_; }

 private:
  void count(std::span<const TensorChange> tensors);
  void choose(std::span<const TensorChange> tensors);
  [[nodiscard]] bool is_worth_it(std::uint64_t bytes, std::uint64_t of_all) const;

  const ColdRules rules_;
  std::vector<std::uint32_t> unchanged_;  // saves, by tensor
  std::vector<bool> cold_;
  std::uint64_t saves_since_choice_ = 0;
  bool has_chosen_ = false;
};

}  // namespace deepfreeze
