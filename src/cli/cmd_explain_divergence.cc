// deepfreeze explain-divergence A B: the step at which two runs that should be alike part, and why.
#include <fmt/ostream.h>

#include <memory>
#include <ostream>

#include "base/try.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_ref.h"
#include "inspect/divergence.h"

namespace deepfreeze {
namespace {

struct DivergenceArguments {
  std::string a;
  std::string b;
};

void print_kinds(const FirstDifference& divergence, Console& console) {
  using enum Column::Align;
  Table table({{"KIND", kLeft}, {"TENSORS", kRight}, {"VALUES", kRight}, {"FIRST", kLeft}});
  for (const KindDiff& each : divergence.kinds) {
    table.add({std::string(name_of(each.kind)), std::to_string(each.tensors),
               std::to_string(each.values), each.first});
  }
  table.print(console.out);
}

void print_divergence(const Comparison& found, Console& console) {
  const FirstDifference& divergence = *found.divergence;
  if (found.equal_through) {
    fmt::print(console.out, "equal through step {}, different at step {}\n", *found.equal_through,
               divergence.step);
  } else {
    fmt::print(console.out, "different at step {}, the first that both have\n", divergence.step);
  }
  print_kinds(divergence, console);
  if (found.values) {
    fmt::print(console.out, "plain values differ from step {} on: {}\n", found.values->step,
               found.values->kinds[0].first);
  }
  for (const EnvironmentDiff& each : divergence.environment) {
    fmt::print(console.out, "environment: {} {} / {}\n", readable(each.name), readable(each.a),
               readable(each.b));
  }
  fmt::print(console.out, "likely cause: {}\n", divergence.cause);
}

void write_divergence(JsonWriter& json, const FirstDifference& divergence) {
  const auto write_kind = [](JsonWriter& list, const KindDiff& each) {
    list.object("kind", name_of(each.kind), "tensors", each.tensors, "values", each.values, "first",
                each.first);
  };
  const auto write_environment = [](JsonWriter& list, const EnvironmentDiff& each) {
    list.object("name", each.name, "a", each.a, "b", each.b);
  };
  json.object("step", divergence.step, "kinds", json_array(divergence.kinds, write_kind),
              "elements", divergence.elements, "l2_relative", divergence.l2_relative, "environment",
              json_array(divergence.environment, write_environment), "cause", divergence.cause);
}

void print_comparison_json(const OpenedRun& a, const OpenedRun& b, const Comparison& found,
                           Console& console) {
  JsonWriter document = json_document("explain-divergence");
  document.key("a");
  write_run(document, a);
  document.key("b");
  write_run(document, b);
  document.members("common_steps", found.common_steps);
  if (found.equal_through) document.members("equal_through", *found.equal_through);
  if (found.divergence) {
    document.key("divergence");
    write_divergence(document, *found.divergence);
  }
  if (found.values) {
    document.key("values_differ");
    document.object("step", found.values->step, "first", found.values->kinds[0].first);
  }
  print_json(console.out, std::move(document));
}

Result<ExitCode> explain_divergence(const DivergenceArguments& arguments, Console& console) {
  DF_TRY(const OpenedRun a, open_whole_run(arguments.a));
  DF_TRY(const OpenedRun b, open_whole_run(arguments.b));
  DF_TRY(const Comparison found, find_divergence(a, b, bars_on(console)));
  if (console.json) {
    print_comparison_json(a, b, found, console);
  } else if (found.divergence) {
    print_divergence(found, console);
  } else {
    fmt::print(console.out, "equal at all {} steps that both have, through step {}\n",
               found.common_steps, *found.equal_through);
  }
  return found.divergence ? kExitFault : kExitGood;
}

}  // namespace

Command add_explain_divergence(Program& program) {
  Verb verb = program.add_verb(
      "explain-divergence",
      "Find the first step at which two runs differ, and the likely cause; exit 1 if they do");
  const auto arguments = std::make_shared<DivergenceArguments>();  // also held by the parser
  verb.value("A", arguments->a, "A run").required();
  verb.value("B", arguments->b, "The run that should equal it").required();
  verb.footer(
      "Compares the steps that both have, oldest first, bit by bit.\n"
      "--json: {a, b: {path, id}, common_steps, equal_through?, divergence?: {step, kinds: "
      "[{kind,\n"
      "  tensors, values, first}], elements, l2_relative, environment: [{name, a, b}], cause},\n"
      "  values_differ?: {step, first}}, of clocks, paths and the like that differ before that");
  return {verb, [arguments](Console& console) { return explain_divergence(*arguments, console); }};
}

}  // namespace deepfreeze
