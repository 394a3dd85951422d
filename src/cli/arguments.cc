#include "cli/arguments.h"

#include <CLI/CLI.hpp>

namespace deepfreeze {

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

Argument Verb::value(const char* name, std::string& value, const char* help) {
  return Argument(*app_.add_option(name, value, help));
}

Argument Verb::value(const char* name, std::uint64_t& value, const char* help) {
  return Argument(*app_.add_option(name, value, help));
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
  return Verb(*app_->add_subcommand(name, what));
}

std::optional<ExitCode> Program::parse(int argc, const char* const* argv, Console& console) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error, console.out, console.err) == 0 ? kExitGood : kExitUsage;
  }
}

}  // namespace deepfreeze
