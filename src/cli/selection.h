// --where and --sort of `ls`: which rows are listed, and in which order.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "inspect/condition.h"

namespace deepfreeze {

// Each option once at most; an empty one is wrong, and not one that was not given.
struct SelectionArguments {
  std::vector<std::string> where;
  std::vector<std::string> sort;
  bool reverse = false;
};
void add_selection(Verb& verb, SelectionArguments& arguments);

struct Selection {
  std::optional<Condition> where;
  std::optional<Field> sort;
  bool reverse = false;

  [[nodiscard]] bool takes(const Subject& subject) const { return !where || where->holds(subject); }
};
// kInvalidArgument names the option.
[[nodiscard]] Result<Selection> selection_of(const SelectionArguments& arguments);

// Rows that lack the field stay at the end in either order.
template <class Row, class SubjectOf>
void sort_rows(std::vector<Row>& rows, const Selection& selection, SubjectOf subject_of) {
  if (!selection.sort) {
    if (selection.reverse) std::ranges::reverse(rows);
    return;
  }
  const auto has_none = [](const FieldValue& value) {
    return std::holds_alternative<std::monostate>(value);
  };
  std::ranges::stable_sort(rows, [&](const Row& a, const Row& b) {
    const FieldValue left = selection.sort->of(subject_of(a));
    const FieldValue right = selection.sort->of(subject_of(b));
    const bool swapped = selection.reverse && !has_none(left) && !has_none(right);
    return swapped ? comes_before(right, left) : comes_before(left, right);
  });
}

}  // namespace deepfreeze
