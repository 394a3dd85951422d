// Which checkpoint is the best.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "best_forms.h"
#include "deepfreeze/checkpointer.h"
#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

CheckpointInfo best_of_list(const std::vector<CheckpointInfo>& infos,
                            std::optional<std::string> metric,
                            const std::optional<std::string>& better,
                            const std::optional<BestForm>& rule) {
  BestBy by{.metric = std::move(metric)};
  if (better) by.better = better_of(*better);
  std::optional<Keep::Best> own;
  if (rule) own = best_of_form(*rule);
  return unwrap(best_of(infos, by, own));
}

// Metric and direction, as far as the text names them.
std::pair<std::optional<std::string>, std::optional<std::string>> parsed_best(
    const std::string& text) {
  const BestBy by = unwrap(parse_best(text));
  if (!by.better) return {by.metric, std::nullopt};
  return {by.metric, name_of(*by.better)};
}

std::optional<BestForm> recorded_best(const std::string& run) {
  const auto keep = without_gil([&run] { return recorded_keep(run); });
  if (!keep || !keep->best) return std::nullopt;
  const Keep::Best& best = *keep->best;
  return BestForm{best.metric, name_of(best.better), best.count};
}

}  // namespace

void bind_best(nb::module_& module) {
  module.def("best_of", &best_of_list, "infos"_a, "metric"_a.none(), "better"_a.none(),
             "rule"_a.none());
  module.def("parse_best", &parsed_best, "text"_a);
  module.def("recorded_best", &recorded_best, "run"_a);
}

}  // namespace deepfreeze::python
