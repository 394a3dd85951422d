// deepfreeze plan --nodes N: how probable it is that lost nodes lose a checkpoint.
#include <fmt/ostream.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "protect/erasure_code.h"
#include "protect/loss_odds.h"
#include "protect/parity_groups.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kNodesMax = 100'000;
constexpr std::size_t kLostAtOnce[] = {1, 2, 4, 8};

struct PlanOfNodes {
  std::uint64_t nodes = 0;
  std::string mtbf = "5y";
  std::string flush = "10m";
  std::string time = "30d";
  std::string cost = "1s";
  std::uint64_t data = 0;
  std::uint64_t parity = 0;
};

struct Times {
  double mtbf = 0;
  double flush = 0;
  double time = 0;
  double cost = 0;
};

// One way to protect checkpoints, for so many nodes.
struct Scheme {
  std::string name;
  std::vector<std::size_t> groups;  // their sizes
  std::size_t parity = 0;
  double extra = 0;    // bytes stored for each byte of a node
  double traffic = 0;  // bytes that a node reads for each byte of its own
  std::vector<double> lost_at_once;
  double lost_over_time = 0;
};

// "90s", "10m", "2h", "30d", "5y".
Result<double> seconds_of(const char* option, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  double factor = 0;
  if (unit == "s") factor = 1;
  if (unit == "m") factor = 60;
  if (unit == "h") factor = 3'600;
  if (unit == "d") factor = 86'400;
  if (unit == "y") factor = 365.25 * 86'400;
  const double seconds = number * factor;
  if (error == std::errc{} && seconds > 0 && seconds < 1e12) return seconds;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} '{}' is not a time such as 90s, 10m, 2h, 30d or 5y", option, readable(text)));
}

Result<Times> times_of(const PlanOfNodes& asked) {
  Times times;
  DF_TRY(times.mtbf, seconds_of("--mtbf", asked.mtbf));
  DF_TRY(times.flush, seconds_of("--flush", asked.flush));
  DF_TRY(times.time, seconds_of("--time", asked.time));
  DF_TRY(times.cost, seconds_of("--cost", asked.cost));
  return times;
}

void fill_in(Scheme& scheme, const Times& times) {
  std::size_t nodes = 0;
  for (const std::size_t size : scheme.groups) nodes += size;
  for (const std::size_t lost : kLostAtOnce) {
    scheme.lost_at_once.push_back(
        loss_of_many(scheme.groups, scheme.parity, std::min(lost, nodes)));
  }
  scheme.lost_over_time =
      loss_over_time(scheme.groups, scheme.parity, times.mtbf, times.flush, times.time);
}

// Nothing if there are too few nodes for it.
std::optional<Scheme> scheme_of(std::string name, std::uint64_t nodes, const Parity& parity,
                                const Times& times) {
  std::vector<std::string> domains;
  for (std::uint64_t node = 0; node < nodes; ++node) domains.push_back(fmt::to_string(node));
  const auto found = group_nodes(domains, parity);
  if (!found) return std::nullopt;
  Scheme scheme{.name = std::move(name), .groups = {}, .parity = parity.parity};
  double extra = 0;
  for (const auto& group : found->groups) {
    scheme.groups.push_back(group.size());
    extra += static_cast<double>(group.size()) * static_cast<double>(parity.parity) /
             static_cast<double>(group.size() - parity.parity);
  }
  scheme.extra = extra / static_cast<double>(nodes);
  scheme.traffic = static_cast<double>(parity.parity);
  fill_in(scheme, times);
  return scheme;
}

Result<std::vector<Scheme>> schemes_of(const PlanOfNodes& asked, const Times& times) {
  std::vector<Scheme> schemes(1);
  schemes[0] = {.name = "no parity", .groups = std::vector<std::size_t>(asked.nodes, 1)};
  fill_in(schemes[0], times);
  const auto add = [&](std::string name, const Parity& parity) {
    auto scheme = scheme_of(std::move(name), asked.nodes, parity, times);
    if (scheme) schemes.push_back(*std::move(scheme));
    return scheme.has_value();
  };
  add("df.partner()", {.data = 1, .parity = 1});
  add("df.parity(7, 1)", {.data = 7, .parity = 1});
  add("df.parity(6, 2)", {.data = 6, .parity = 2});
  add("df.parity(12, 4)", {.data = 12, .parity = 4});
  if (asked.data == 0 && asked.parity == 0) return schemes;
  if (add(fmt::format("df.parity({}, {})", asked.data, asked.parity),
          {.data = asked.data, .parity = asked.parity})) {
    return schemes;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--data {} and --parity {} can't be for {} nodes: both must be 1 at "
                          "least, their sum {} at most, and there must be more nodes than parity",
                          asked.data, asked.parity, asked.nodes, kPiecesMax));
}

std::string probability_text(double p) {
  if (p <= 0) return "0";
  if (p >= 0.0005) return fmt::format("{:.3g} %", 100 * p);
  return fmt::format("{:.1e}", p);
}

std::string interval_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

void print_plan(const PlanOfNodes& asked, const Times& times, const std::vector<Scheme>& schemes,
                std::ostream& out) {
  std::vector<Column> columns = {
      {""}, {"more bytes", Column::Align::kRight}, {"reads", Column::Align::kRight}};
  for (const std::size_t lost : kLostAtOnce) {
    columns.push_back({fmt::format("{} lost", lost), Column::Align::kRight});
  }
  columns.push_back({"in " + asked.time, Column::Align::kRight});
  Table table(std::move(columns));
  for (const Scheme& scheme : schemes) {
    std::vector<std::string> cells = {scheme.name, fmt::format("{:.2f}x", scheme.extra),
                                      fmt::format("{:.0f}x", scheme.traffic)};
    for (const double p : scheme.lost_at_once) cells.push_back(probability_text(p));
    cells.push_back(probability_text(scheme.lost_over_time));
    table.add(std::move(cells));
  }
  table.print(out);
  const double job_mtbf = times.mtbf / static_cast<double>(asked.nodes);
  fmt::print(
      out,
      "the probability that a checkpoint which is on no farther tier yet is lost: if so many "
      "of\n{} nodes are lost at once; and in {}, if each fails once in {}, independently of "
      "the\nothers, and after {} the checkpoint is on a farther tier or protected anew\n",
      asked.nodes, asked.time, asked.mtbf, asked.flush);
  fmt::print(out, "some node fails every {}; if a save costs {}, save every {}\n",
             interval_text(job_mtbf), asked.cost,
             interval_text(best_interval(times.cost, job_mtbf)));
  fmt::print(out,
             "note: losses of real nodes are not independent; name in domain= a part that fails as "
             "a whole\n");
}

void print_document(const PlanOfNodes& asked, const Times& times,
                    const std::vector<Scheme>& schemes, std::ostream& out) {
  JsonWriter document = json_document("plan");
  const double job_mtbf = times.mtbf / static_cast<double>(asked.nodes);
  document.members("nodes", asked.nodes, "mtbf_seconds", times.mtbf, "flush_seconds", times.flush,
                   "time_seconds", times.time, "cost_seconds", times.cost, "job_mtbf_seconds",
                   job_mtbf, "best_interval_seconds", best_interval(times.cost, job_mtbf));
  document.key("schemes");
  document.begin_array();
  for (const Scheme& scheme : schemes) {
    document.begin_object();
    document.members("name", scheme.name, "parity", scheme.parity, "groups", scheme.groups,
                     "extra_bytes", scheme.extra, "bytes_read", scheme.traffic, "lost_over_time",
                     scheme.lost_over_time);
    document.key("lost_at_once");
    document.begin_array();
    for (std::size_t i = 0; i < scheme.lost_at_once.size(); ++i) {
      document.object("nodes", kLostAtOnce[i], "probability", scheme.lost_at_once[i]);
    }
    document.end_array();
    document.end_object();
  }
  document.end_array();
  print_json(out, std::move(document));
}

Result<ExitCode> run_plan(const PlanOfNodes& asked, Console& console) {
  DF_TRY(const Times times, times_of(asked));
  DF_TRY(const std::vector<Scheme> schemes, schemes_of(asked, times));
  if (console.json) {
    print_document(asked, times, schemes, console.out);
  } else {
    print_plan(asked, times, schemes, console.out);
  }
  return kExitGood;
}

}  // namespace

Command add_plan(Program& program) {
  Verb verb =
      program.add_verb("plan", "How probable it is that lost nodes lose a checkpoint, by scheme");
  const auto arguments = std::make_shared<PlanOfNodes>();  // also held by the parser
  verb.value("--nodes", arguments->nodes, "Of the job").required().between(1, kNodesMax);
  verb.value("--mtbf", arguments->mtbf, "The time between two failures of one node")
      .default_in_help();
  verb.value("--flush", arguments->flush, "From a checkpoint to its copy on a farther tier")
      .default_in_help();
  verb.value("--time", arguments->time, "The time for which the job runs").default_in_help();
  verb.value("--cost", arguments->cost, "The time that one save costs").default_in_help();
  verb.value("--data", arguments->data, "Of one more scheme, df.parity(DATA, PARITY)")
      .between(1, kPiecesMax);
  verb.value("--parity", arguments->parity, "The same: the nodes of a group that may be lost")
      .between(1, kPiecesMax);
  verb.footer(
      "Times are such as 90s, 10m, 2h, 30d, 5y. The columns: bytes that a node stores for each\n"
      "byte of its own, bytes that it reads, and probabilities. docs/nodes.md has the formulas.\n"
      "--json: {nodes, mtbf_seconds, flush_seconds, time_seconds, cost_seconds, job_mtbf_seconds,\n"
      "best_interval_seconds, schemes: [{name, parity, groups: sizes, extra_bytes, bytes_read,\n"
      "lost_over_time, lost_at_once: [{nodes, probability}]}]}");
  return {verb, [arguments](Console& console) { return run_plan(*arguments, console); }};
}

}  // namespace deepfreeze
