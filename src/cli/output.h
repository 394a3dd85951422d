// How the program writes numbers, times and tables for people, and JSON for programs. Pure.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "deepfreeze/tensor.h"
#include "format/records.h"
#include "inspect/text.h"

namespace deepfreeze {

struct Column {
  enum class Align : std::uint8_t { kLeft, kRight };
  std::string title;
  Align align = Align::kLeft;
};

// Counts code points; most terminals show one per column.
[[nodiscard]] std::size_t text_width(std::string_view text);

// Rows of text under aligned titles. Cells are made readable().
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);  // one per column
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::size_t width() const;  // of a line, at most
  void print(std::ostream& out) const;

 private:
  [[nodiscard]] std::vector<std::size_t> widths() const;
  void print_row(std::ostream& out, const std::vector<std::string>& cells,
                 const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// For people: printable(), and long words without their middle. --json has all of them.
[[nodiscard]] std::string readable(std::string_view text);
// Replaces the middle by "…" if the text has more than `width_max` characters.
[[nodiscard]] std::string cut_to(std::size_t width_max, std::string_view text);

[[nodiscard]] std::string human_bytes(std::uint64_t bytes);  // "306.9 MB", powers of 1000
[[nodiscard]] std::string human_age(std::int64_t then, std::int64_t now);  // "3 min ago"
[[nodiscard]] std::string number_text(double value);  // six digits, "nan", "-inf"

[[nodiscard]] nlohmann::ordered_json json_document(std::string_view verb);
// Finite numbers as they are; the others as "nan", "inf", "-inf", since JSON has no such numbers.
[[nodiscard]] nlohmann::ordered_json number_json(double value);
[[nodiscard]] nlohmann::ordered_json spec_members(const TensorSpec& spec);
[[nodiscard]] nlohmann::ordered_json point_members(const Point& point);
[[nodiscard]] nlohmann::ordered_json metric_members(const std::map<std::string, double>& metrics);
[[nodiscard]] nlohmann::ordered_json error_json(const Error& error);
void print_json(std::ostream& out, const nlohmann::ordered_json& document);

}  // namespace deepfreeze
