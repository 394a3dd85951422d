#include "cli/output.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <ostream>

#include "base/hex.h"
#include "base/shortened.h"
#include "cli/console.h"

namespace deepfreeze {
namespace {

// The place at which the character after the first `count` begins.
std::size_t bytes_of_first(std::string_view text, std::size_t count) {
  std::size_t place = 0;
  for (; place < text.size(); ++place) {
    const bool begins = (static_cast<unsigned char>(text[place]) & 0xC0U) != 0x80U;
    if (begins && count-- == 0) break;
  }
  return place;
}

}  // namespace

std::size_t text_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = readable(cell);
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::print_row(std::ostream& out, const std::vector<std::string>& cells,
                      const std::vector<std::size_t>& widths) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string space(widths[i] - text_width(cells[i]), ' ');
    if (i > 0) line += "  ";
    line += columns_[i].align == Column::Align::kLeft ? cells[i] + space : space + cells[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print(out, "{}\n", line);
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(text_width(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], text_width(row[i]));
    }
  }
  return widths;
}

std::size_t Table::width() const {
  const std::vector<std::size_t> all = widths();
  return std::accumulate(all.begin(), all.end(), 2 * (all.size() - 1));
}

void Table::print(std::ostream& out) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const std::vector<std::size_t> widths = this->widths();
  print_row(out, titles, widths);
  for (const auto& row : rows_) print_row(out, row, widths);
}

std::string cut_to(std::size_t width_max, std::string_view text) {
  const std::size_t width = text_width(text);
  if (width <= width_max) return std::string(text);
  const std::size_t tail = width_max / 3;
  const std::size_t head = width_max - tail - 1;
  return fmt::format("{}…{}", text.substr(0, bytes_of_first(text, head)),
                     text.substr(bytes_of_first(text, width - tail)));
}

std::string readable(std::string_view text) { return shortened(printable(text)); }

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> kUnits{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 999.95 would be written as 1000.0.
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_age(std::int64_t then, std::int64_t now) {
  const double seconds = (static_cast<double>(now) - static_cast<double>(then)) / 1e6;
  if (seconds < 0) return "in the future";
  if (seconds < 90) return fmt::format("{:.0f} s ago", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} min ago", seconds / 60);
  if (seconds < 36 * 3600) return fmt::format("{:.0f} h ago", seconds / 3600);
  return fmt::format("{:.0f} days ago", seconds / 86400);
}

std::string number_text(double value) { return fmt::format("{:.6g}", value); }

JsonWriter json_document(std::string_view verb) {
  JsonWriter document(JsonWriter::Layout::kIndented);
  document.begin_object();
  document.members("format", kJsonFormat, "command", verb);
  return document;
}

JsonWriter json_document(std::string_view verb, const OpenedRun& run) {
  JsonWriter document = json_document(verb);
  document.key("run");
  write_run(document, run);
  return document;
}

void print_json(std::ostream& out, JsonWriter document) {
  document.end_object();
  out << document.text() << '\n';
}

void write_error(JsonWriter& json, const Error& error) {
  json.object("code", to_string(error.code()), "message", error.message());
}

void write_run(JsonWriter& json, const OpenedRun& run) {
  json.object("path", run.path, "id", run.listing.run.run_id);
}

void write_point(JsonWriter& json, const Point& point) {
  json.begin_object();
  write_point_members(json, point);
  json.end_object();
}

void write_point_members(JsonWriter& json, const Point& point) {
  json.members("generation", point.generation, "step", point.step, "save", point.save_index,
               "attempt", hex64(point.attempt_id));
}

void write_spec_members(JsonWriter& json, const TensorSpec& spec) {
  json.members("key", spec.key, "dtype", dtype_name(spec.dtype), "shape", spec.shape);
  if (!spec.logical_dtype.empty()) json.members("logical_dtype", spec.logical_dtype);
  if (const auto bytes = spec_bytes(spec)) json.members("bytes", *bytes);
}

}  // namespace deepfreeze
