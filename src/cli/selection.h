// --where and --sort of `ls`: which rows are listed, and in which order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
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
  const auto is_before = [&](const Row& a, const Row& b) {
    const FieldValue left = selection.sort->of(subject_of(a));
    const FieldValue right = selection.sort->of(subject_of(b));
    const bool swapped = selection.reverse && !has_none(left) && !has_none(right);
    return swapped ? comes_before(right, left) : comes_before(left, right);
  };
  // Equal ones stay in order; clang takes no std::stable_sort of g++ 12's library.
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (is_before(rows[a], rows[b])) return true;
    return !is_before(rows[b], rows[a]) && a < b;
  });
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (const std::size_t at : order) sorted.push_back(std::move(rows[at]));
  rows = std::move(sorted);
}

}  // namespace deepfreeze
