#include "cli/selection.h"

#include "base/try.h"

namespace deepfreeze {

void add_selection(Verb& verb, SelectionArguments& arguments) {
  verb.value(
      "--where", arguments.where,
      "Only checkpoints, or runs with one, for which this holds: 'loss<0.2 and tag.lr=3e-4'");
  verb.value("--sort", arguments.sort, "By step, steps, bytes, tag.NAME or a metric's name");
  verb.flag("--reverse", arguments.reverse, "The other way round");
}

Result<Selection> selection_of(const SelectionArguments& arguments) {
  Selection selection{.where = {}, .sort = {}, .reverse = arguments.reverse};
  if (!arguments.where.empty()) {
    auto where = Condition::parse(arguments.where);
    if (!where) return std::unexpected(where.error().within("--where"));
    selection.where = *std::move(where);
  }
  if (!arguments.sort.empty()) {
    auto sort = Field::parse(arguments.sort);
    if (!sort) return std::unexpected(sort.error().within("--sort"));
    selection.sort = *std::move(sort);
  }
  return selection;
}

}  // namespace deepfreeze
