#include "cli/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace deepfreeze {
namespace {

// A dash that isn't escaped becomes a hyphen, which no shell takes.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char each : text) {
    if (each == '\\') {
      out += "\\e";
    } else if (each == '-') {
      out += "\\-";
    } else {
      out += each;
    }
  }
  return out;
}

// A line that begins with a dot or an apostrophe would be a request to groff.
std::string line_of(std::string_view text) {
  const bool is_request = text.starts_with('.') || text.starts_with('\'');
  return (is_request ? "\\&" : "") + escaped(text) + '\n';
}

std::string lines_of(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += line_of(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char each) { return std::toupper(each); });
  return text;
}

std::string head(const ProgramDescription& program, const std::string& page,
                 const std::string& what) {
  return fmt::format(".TH \"{}\" \"1\" \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                     escaped(upper(page)), escaped(program.version), escaped(page), escaped(what));
}

std::string label(const ArgumentDescription& argument) {
  std::string text = escaped(fmt::format("{}", fmt::join(argument.names, ", ")));
  if (text.empty()) return fmt::format(".I {}\n", escaped(argument.value));
  text = fmt::format("\\fB{}\\fR", text);
  return text + (argument.value.empty() ? "" : fmt::format(" \\fI{}\\fR", argument.value)) + '\n';
}

std::string facts(const ArgumentDescription& argument) {
  std::vector<std::string> all;
  if (argument.required && !argument.names.empty()) all.emplace_back("required");
  if (!argument.range.empty()) all.push_back(argument.range);
  if (!argument.preset.empty()) all.push_back("otherwise " + argument.preset);
  return all.empty() ? "" : fmt::format(" ({})", fmt::join(all, "; "));
}

std::string paragraph(const ArgumentDescription& argument) {
  return ".TP\n" + label(argument) + line_of(argument.help + facts(argument));
}

std::string in_synopsis(const ArgumentDescription& argument) {
  const std::string name =
      fmt::format("\\fI{}\\fR{}", argument.value, argument.repeated ? "..." : "");
  return argument.required ? name : fmt::format("[{}]", name);
}

std::string synopsis(const ProgramDescription& program, const VerbDescription& verb) {
  std::string text =
      fmt::format(".SH SYNOPSIS\n.B {} {}\n[\\fIOPTION\\fR...]", program.name, escaped(verb.name));
  for (const ArgumentDescription& argument : verb.arguments) {
    if (argument.names.empty()) text += ' ' + in_synopsis(argument);
  }
  return text + '\n';
}

// The documents of --json come last, after the first line that begins with an option: they stay
// line by line as help has them.
std::size_t json_begin(const std::string& footer) {
  if (footer.starts_with("--")) return 0;
  const std::size_t end = footer.find("\n--");
  return end == std::string::npos ? footer.size() : end + 1;
}

std::string description_section(const std::string& footer) {
  const std::string prose = footer.substr(0, json_begin(footer));
  return prose.empty() ? "" : ".SH DESCRIPTION\n" + lines_of(prose);
}

std::string json_section(const std::string& footer) {
  const std::string form = footer.substr(json_begin(footer));
  return form.empty() ? "" : ".SH \"JSON OUTPUT\"\n.nf\n" + lines_of(form) + ".fi\n";
}

std::string arguments_section(const std::vector<ArgumentDescription>& arguments) {
  std::string text = ".SH OPTIONS\n";
  for (const ArgumentDescription& argument : arguments) text += paragraph(argument);
  return text;
}

}  // namespace

std::string manual_page(const ProgramDescription& program) {
  std::string text = head(program, program.name, program.what);
  text += fmt::format(".SH SYNOPSIS\n.B {}\n\\fIVERB\\fR [\\fIARGUMENT\\fR...]\n", program.name);
  text += ".SH DESCRIPTION\n" + lines_of(program.footer) + ".SH VERBS\n";
  for (const VerbDescription& verb : program.verbs) {
    text += fmt::format(".TP\n.BR {} (1)\n{}",
                        escaped(fmt::format("{}-{}", program.name, verb.name)), line_of(verb.what));
  }
  return text + arguments_section(program.arguments);
}

std::string manual_page(const ProgramDescription& program, const VerbDescription& verb) {
  std::string text = head(program, fmt::format("{}-{}", program.name, verb.name), verb.what);
  text += synopsis(program, verb);
  if (verb.takes_anything) {
    text += fmt::format(
        ".SH DESCRIPTION\nThe Python package does this; without it the verb fails. Its options:\n"
        ".PP\n.B {} {} \\-\\-help\n",
        program.name, escaped(verb.name));
  }
  text += description_section(verb.footer) + arguments_section(verb.arguments);
  text += json_section(verb.footer);
  return text + fmt::format(".SH \"SEE ALSO\"\n.BR {} (1)\n", program.name);
}

}  // namespace deepfreeze
