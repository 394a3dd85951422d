// How the program writes numbers, times and tables for people, and JSON for programs. Pure.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "deepfreeze/tensor.h"
#include "format/records.h"
#include "inspect/text.h"
#include "json/json_writer.h"
#include "restore/opened_run.h"

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

// Begins the document of a verb; print_json() ends and prints it.
[[nodiscard]] JsonWriter json_document(std::string_view verb);
[[nodiscard]] JsonWriter json_document(std::string_view verb, const OpenedRun& run);
void print_json(std::ostream& out, JsonWriter document);

// These write one value, the others members of the open object.
void write_error(JsonWriter& json, const Error& error);
void write_run(JsonWriter& json, const OpenedRun& run);
void write_point(JsonWriter& json, const Point& point);
void write_point_members(JsonWriter& json, const Point& point);
void write_spec_members(JsonWriter& json, const TensorSpec& spec);

}  // namespace deepfreeze
