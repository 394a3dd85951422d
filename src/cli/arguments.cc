#include "cli/arguments.h"

#include <fmt/ostream.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "cli/output.h"

namespace deepfreeze {
namespace {

// The number of letters to insert, delete, replace or swap with a neighbour.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(above, std::move(row));
  }
  return above.back();
}

// Empty if no verb is near, so that nobody is sent to an unrelated verb.
std::string nearest_to(std::string_view word, const std::vector<std::string>& verbs) {
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, word.size() / 2) + 1;
  for (const std::string& verb : verbs) {
    const bool begins = word.size() > 1 && verb.starts_with(word);
    const std::size_t edits = begins ? 0 : edits_between(word, verb);
    if (edits < least) {
      least = edits;
      nearest = verb;
    }
  }
  return nearest;
}

constexpr double kNumberMax = 1e15;          // of an argument with decimals
constexpr std::size_t kVerbLettersMax = 40;  // a longer word is near to none

std::string no_such_verb(const std::string& word, const std::vector<std::string>& verbs) {
  const std::string near = word.size() > kVerbLettersMax ? "" : nearest_to(word, verbs);
  const std::string hint = near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
  return fmt::format("deepfreeze: there is no verb '{}'{}\ndeepfreeze --help lists the verbs\n",
                     readable(word), hint);
}

// "UINT:UINT in [1 - 9]" is a kind of value and its range, "UINT:POSITIVE" a kind and a rule.
ArgumentDescription describe_argument(const CLI::Option& option) {
  ArgumentDescription argument{.preset = option.get_default_str(),
                               .help = option.get_description(),
                               .required = option.get_required(),
                               .repeated = option.get_items_expected_max() > 1};
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  const std::string kind = option.get_type_name();
  const std::size_t end = std::min(kind.find(':'), kind.size());
  if (option.get_positional()) {
    argument.value = option.get_name();
  } else if (option.get_items_expected_max() > 0) {
    argument.value = kind.substr(0, end);
  }
  const std::size_t range = kind.find("in [", end);
  if (range != std::string::npos) argument.range = kind.substr(range);
  return argument;
}

std::vector<ArgumentDescription> describe_arguments(const CLI::App& app) {
  std::vector<ArgumentDescription> arguments;
  for (const CLI::Option* option : app.get_options()) {
    arguments.push_back(describe_argument(*option));
  }
  return arguments;
}

}  // namespace

Argument& Argument::required() {
  option_.required();
  return *this;
}

Argument& Argument::positive() {
  option_.check(CLI::PositiveNumber);
  return *this;
}

Argument& Argument::between(std::uint64_t least, std::uint64_t most) {
  option_.check(CLI::Range(least, most));
  return *this;
}

Argument& Argument::default_in_help() {
  option_.capture_default_str();
  return *this;
}

Argument& Argument::one_at_a_time() {
  option_.allow_extra_args(false);
  return *this;
}

Argument Verb::value(const char* name, std::string& value, const char* help) {
  return Argument(*app_.add_option(name, value, help));
}

Argument Verb::value(const char* name, std::uint64_t& value, const char* help) {
  return Argument(*app_.add_option(name, value, help));
}

Argument Verb::value(const char* name, double& value, const char* help) {
  CLI::Option& option = *app_.add_option(name, value, help);
  option.check([](const std::string& text) {
    const double number = std::strtod(text.c_str(), nullptr);
    return number >= 0 && number <= kNumberMax ? "" : text + " is no number from 0 on";  // or NaN
  });
  return Argument(option);
}

Argument Verb::values(const char* name, std::vector<std::string>& values, const char* help) {
  return Argument(*app_.add_option(name, values, help));
}

void Verb::flag(const char* name, bool& value, const char* help) {
  app_.add_flag(name, value, help);
}

void Verb::footer(const char* text) { app_.footer(text); }

void Verb::takes_anything() {
  app_.allow_extras();
  app_.set_help_flag();
}

const std::string& Verb::name() const { return app_.get_name(); }

bool Verb::given() const { return app_.parsed(); }

std::vector<std::string> Verb::rest() const { return app_.remaining(); }

Program::Program(const char* name, const char* what, const std::string& version, const char* footer)
    : app_(std::make_unique<CLI::App>(what, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->footer(footer);
}

Program::~Program() = default;

Verb Program::add_verb(const char* name, const char* what) {
  verbs_.emplace_back(name);
  return Verb(*app_->add_subcommand(name, what));
}

std::optional<ExitCode> Program::parse(int argc, const char* const* argv, Console& console) {
  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_verb = std::ranges::find(verbs_, first) != verbs_.end();
  if (!is_verb && !first.starts_with('-')) {
    fmt::print(console.err, "{}",
               first.empty() ? "deepfreeze: name a verb; deepfreeze --help lists them\n"
                             : no_such_verb(first, verbs_));
    return kExitUsage;
  }
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error, console.out, console.err) == 0 ? kExitGood : kExitUsage;
  }
}

ProgramDescription Program::describe() const {
  ProgramDescription program{.name = app_->get_name(),
                             .what = app_->get_description(),
                             .version = app_->version(),
                             .footer = app_->get_footer(),
                             .arguments = describe_arguments(*app_)};
  for (const CLI::App* verb : app_->get_subcommands({})) {
    program.verbs.push_back({.name = verb->get_name(),
                             .what = verb->get_description(),
                             .footer = verb->get_footer(),
                             .arguments = describe_arguments(*verb),
                             .takes_anything = verb->get_allow_extras()});
  }
  return program;
}

}  // namespace deepfreeze
