// Which metrics of a list of checkpoints get a column of their own. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"

namespace deepfreeze {

using Metrics = std::map<std::string, double>;

// Metrics that most checkpoints have come first, among them "loss" and the like, then by name.
[[nodiscard]] std::vector<std::string> metrics_by_use(const std::vector<Metrics>& rows);

struct MetricColumns {
  std::vector<std::string> names;
  std::size_t left_out = 0;
};

// As many, in that order, as `width` characters hold; one at least. All of them without a limit.
[[nodiscard]] MetricColumns fitting_metrics(const std::vector<Metrics>& rows,
                                            std::optional<std::size_t> width);

[[nodiscard]] Column metric_column(const std::string& name);
[[nodiscard]] std::string metric_cell(const Metrics& metrics, const std::string& name);

}  // namespace deepfreeze
