#include "cli/selection.h"

#include <fmt/format.h>

#include "base/try.h"

namespace deepfreeze {
namespace {

// Nothing if the option was not given.
template <class Parsed>
Result<std::optional<Parsed>> parsed(const char* name, const std::vector<std::string>& given) {
  if (given.empty()) return std::nullopt;
  if (given.size() > 1) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is given more than once", name));
  }
  auto one = Parsed::parse(given.front());
  if (!one) return std::unexpected(one.error().within(name));
  return *std::move(one);
}

}  // namespace

void add_selection(Verb& verb, SelectionArguments& arguments) {
  verb.values(
          "--where", arguments.where,
          "Only checkpoints, or runs with one, for which this holds: 'loss<0.2 and tag.lr=3e-4'")
      .one_at_a_time();
  verb.values("--sort", arguments.sort, "By step, steps, bytes, tag.NAME or a metric's name")
      .one_at_a_time();
  verb.flag("--reverse", arguments.reverse, "The other way round");
}

Result<Selection> selection_of(const SelectionArguments& arguments) {
  Selection selection{.where = {}, .sort = {}, .reverse = arguments.reverse};
  DF_TRY(selection.where, parsed<Condition>("--where", arguments.where));
  DF_TRY(selection.sort, parsed<Field>("--sort", arguments.sort));
  return selection;
}

}  // namespace deepfreeze
