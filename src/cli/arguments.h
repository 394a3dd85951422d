// The arguments of a verb, and the parser that fills them in. CLI11 stays within arguments.cc: a
// file that includes it compiles for half a minute.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/description.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace deepfreeze {

class Argument {
 public:
  explicit Argument(CLI::Option& option) : option_(option) {}
  Argument& required();
  Argument& positive();
  Argument& between(std::uint64_t least, std::uint64_t most);
  Argument& default_in_help();
  Argument& one_at_a_time();  // of an option with values: each needs the option's name before it

 private:
  CLI::Option& option_;
};

// Names are as CLI11 reads them: "RUN" goes by its place, "--rate" by its name. Each value is
// written by Program::parse() and must live until then.
class Verb {
 public:
  explicit Verb(CLI::App& app) : app_(app) {}
  Argument value(const char* name, std::string& value, const char* help);
  Argument value(const char* name, std::uint64_t& value, const char* help);
  Argument value(const char* name, double& value, const char* help);  // finite, not below 0
  Argument values(const char* name, std::vector<std::string>& values, const char* help);
  void flag(const char* name, bool& value, const char* help);
  void footer(const char* text);
  // For a verb that another program runs: all arguments that are no flags of the verb go to rest(),
  // --help included.
  void takes_anything();

  [[nodiscard]] const std::string& name() const;
  // After Program::parse():
  [[nodiscard]] bool given() const;  // on the command line
  [[nodiscard]] std::vector<std::string> rest() const;

 private:
  CLI::App& app_;
};

class Program {
 public:
  Program(const char* name, const char* what, const std::string& version, const char* footer);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  [[nodiscard]] Verb add_verb(const char* name, const char* what);
  // Empty if one verb was given. Otherwise help or a usage error was printed, and the program ends
  // with this exit code.
  [[nodiscard]] std::optional<ExitCode> parse(int argc, const char* const* argv, Console& console);
  // The verbs and options that parse() takes.
  [[nodiscard]] ProgramDescription describe() const;

 private:
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> verbs_;
};

}  // namespace deepfreeze
