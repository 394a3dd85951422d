// A word that is no verb and no option is completed as a path: runs are directories.
#include "cli/completion.h"

#include <fmt/format.h>

namespace deepfreeze {
namespace {

std::vector<std::string> option_names(const std::vector<ArgumentDescription>& arguments) {
  std::vector<std::string> names;
  for (const ArgumentDescription& argument : arguments) {
    names.insert(names.end(), argument.names.begin(), argument.names.end());
  }
  return names;
}

std::vector<std::string> first_words(const ProgramDescription& program) {
  std::vector<std::string> words = option_names(program.arguments);
  for (const VerbDescription& verb : program.verbs) words.push_back(verb.name);
  return words;
}

// With a backslash before each of the given characters.
std::string with_backslashes(std::string_view text, std::string_view special) {
  std::string out;
  for (const char each : text) {
    if (special.find(each) != std::string_view::npos) out += '\\';
    out += each;
  }
  return out;
}

// A word of zsh in apostrophes: one within it ends the word and begins it again.
std::string zsh_word(std::string_view text) {
  std::string out;
  for (const char each : text) out += each == '\'' ? "'\\''" : std::string(1, each);
  return fmt::format("'{}'", out);
}

std::string zsh_option(const std::string& name, const ArgumentDescription& argument) {
  const std::string help = with_backslashes(argument.help, "[]:\\");
  const std::string value = argument.value.empty() ? "" : fmt::format(":{}:_files", argument.value);
  return zsh_word(fmt::format("{}{}[{}]{}", argument.repeated ? "*" : "", name, help, value));
}

std::string zsh_verb(const VerbDescription& verb) {
  std::string text = fmt::format("    {})\n      _arguments", verb.name);
  for (const ArgumentDescription& argument : verb.arguments) {
    for (const std::string& name : argument.names) {
      text += " \\\n        " + zsh_option(name, argument);
    }
  }
  return text + " \\\n        '*:path:_files'\n      ;;\n";
}

std::string fish_word(std::string_view text) {
  return fmt::format("'{}'", with_backslashes(text, "'\\"));
}

std::string fish_option(const std::string& program, const std::string& condition,
                        const std::string& name, const ArgumentDescription& argument) {
  const bool is_long = name.starts_with("--");
  return fmt::format("complete -c {} -n {} {} {}{} -d {}\n", program, fish_word(condition),
                     is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1),
                     argument.value.empty() ? "" : " -r", fish_word(argument.help));
}

std::string fish_options(const std::string& program, const std::string& condition,
                         const std::vector<ArgumentDescription>& arguments) {
  std::string text;
  for (const ArgumentDescription& argument : arguments) {
    for (const std::string& name : argument.names) {
      text += fish_option(program, condition, name, argument);
    }
  }
  return text;
}

}  // namespace

std::string bash_completion(const ProgramDescription& program) {
  std::string text = fmt::format(
      "_{0}() {{\n"
      "  local words=\"{1}\"\n"
      "  COMPREPLY=()\n"
      "  if [[ $COMP_CWORD -gt 1 ]]; then\n"
      "    [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]] || return 0\n"
      "    case ${{COMP_WORDS[1]}} in\n",
      program.name, fmt::join(first_words(program), " "));
  for (const VerbDescription& verb : program.verbs) {
    text += fmt::format("      {}) words=\"{}\" ;;\n", verb.name,
                        fmt::join(option_names(verb.arguments), " "));
  }
  return text + fmt::format(
                    "      *) return 0 ;;\n"
                    "    esac\n"
                    "  fi\n"
                    "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
                    "\"${{COMP_WORDS[COMP_CWORD]}}\")\n"
                    "}}\n"
                    "complete -o default -F _{0} {0}\n",
                    program.name);
}

std::string zsh_completion(const ProgramDescription& program) {
  std::string text =
      fmt::format("#compdef {}\n\nif (( CURRENT == 2 )); then\n  local -a verbs=(\n", program.name);
  for (const VerbDescription& verb : program.verbs) {
    text += fmt::format("    {}\n", zsh_word(verb.name + ":" + with_backslashes(verb.what, ":\\")));
  }
  text += fmt::format(
      "  )\n  _describe verb verbs\n  compadd -- {}\nelse\n  shift words\n"
      "  (( CURRENT-- ))\n  case $words[1] in\n",
      fmt::join(option_names(program.arguments), " "));
  for (const VerbDescription& verb : program.verbs) text += zsh_verb(verb);
  return text + "  esac\nfi\n";
}

std::string fish_completion(const ProgramDescription& program) {
  const std::string first = "__fish_use_subcommand";
  std::string text = fish_options(program.name, first, program.arguments);
  for (const VerbDescription& verb : program.verbs) {
    text += fmt::format("complete -c {} -n {} -f -a {} -d {}\n", program.name, first, verb.name,
                        fish_word(verb.what));
    text += fish_options(program.name, "__fish_seen_subcommand_from " + verb.name, verb.arguments);
  }
  return text;
}

}  // namespace deepfreeze
