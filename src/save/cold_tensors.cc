#include "save/cold_tensors.h"

namespace deepfreeze {
namespace {

bool has_woken(const std::vector<bool>& cold, std::span<const TensorChange> tensors) {
  for (std::size_t i = 0; i < cold.size(); ++i) {
    if (cold[i] && tensors[i].has_changed) return true;
  }
  return false;
}

std::uint64_t bytes_of(const std::vector<bool>& chosen, std::span<const TensorChange> tensors) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) bytes += chosen[i] ? tensors[i].bytes : 0;
  return bytes;
}

}  // namespace

void ColdTensors::note(std::span<const TensorChange> tensors) {
  if (unchanged_.size() != tensors.size()) {
    unchanged_.assign(tensors.size(), 0);
    cold_.clear();
    has_chosen_ = false;
  }
  count(tensors);
  const bool is_early = has_chosen_ && saves_since_choice_ < rules_.saves_between_min;
  if (is_early && !has_woken(cold_, tensors)) return;
  choose(tensors);
}

void ColdTensors::count(std::span<const TensorChange> tensors) {
  ++saves_since_choice_;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    unchanged_[i] = tensors[i].has_changed ? 0 : unchanged_[i] + 1;
  }
}

// Tensors that have woken go in any case; others come only if it is worth a new layout.
void ColdTensors::choose(std::span<const TensorChange> tensors) {
  std::vector<bool> chosen(tensors.size());
  std::vector<bool> all(tensors.size(), true);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    chosen[i] = unchanged_[i] >= rules_.unchanged_saves_min && tensors[i].bytes > 0;
  }
  const std::uint64_t bytes = bytes_of(chosen, tensors);
  const std::uint64_t bytes_of_all = bytes_of(all, tensors);
  const bool wakes = has_woken(cold_, tensors);
  const std::uint64_t bytes_now = wakes ? 0 : bytes_of(cold_, tensors);
  if (!is_worth_it(bytes - bytes_now, bytes_of_all)) {
    if (!wakes) return;
    chosen.clear();
  }
  cold_ = std::move(chosen);
  has_chosen_ = true;
  saves_since_choice_ = 0;
}

bool ColdTensors::is_worth_it(std::uint64_t bytes, std::uint64_t of_all) const {
  return bytes >= rules_.bytes_min &&
         static_cast<double>(bytes) >= rules_.share_min * static_cast<double>(of_all);
}

}  // namespace deepfreeze
