#include "cli/metric_columns.h"

#include <algorithm>
#include <tuple>

namespace deepfreeze {
namespace {

constexpr std::size_t kTitleMax = 24;
constexpr std::size_t kSpace = 2;  // between two columns of a table

// People look for the loss first in a list of checkpoints.
bool is_loss(const std::string& name) { return name.find("loss") != std::string::npos; }

std::size_t width_of(const std::vector<Metrics>& rows, const std::string& name) {
  std::size_t width = text_width(metric_column(name).title);
  for (const Metrics& row : rows) width = std::max(width, metric_cell(row, name).size());
  return width + kSpace;
}

}  // namespace

std::vector<std::string> metrics_by_use(const std::vector<Metrics>& rows) {
  std::map<std::string, std::size_t> uses;
  for (const Metrics& row : rows) {
    for (const auto& [name, value] : row) ++uses[name];
  }
  std::vector<std::string> names;
  for (const auto& [name, count] : uses) names.push_back(name);
  std::ranges::sort(names, {}, [&](const std::string& name) {
    return std::tuple(rows.size() - uses[name], !is_loss(name), name);
  });
  return names;
}

MetricColumns fitting_metrics(const std::vector<Metrics>& rows, std::optional<std::size_t> width) {
  MetricColumns columns{.names = metrics_by_use(rows)};
  if (!width) return columns;
  std::size_t used = 0;
  std::size_t count = 0;
  for (const std::string& name : columns.names) {
    used += width_of(rows, name);
    if (used > *width) break;
    ++count;
  }
  count = std::min(std::max<std::size_t>(count, 1), columns.names.size());
  columns.left_out = columns.names.size() - count;
  columns.names.resize(count);
  return columns;
}

Column metric_column(const std::string& name) {
  return {.title = cut_to(kTitleMax, printable(name)), .align = Column::Align::kRight};
}

std::string metric_cell(const Metrics& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? "" : number_text(found->second);
}

}  // namespace deepfreeze
