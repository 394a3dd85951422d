#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "cli/completion.h"
#include "cli/manual.h"
#include "cli/test_run.h"

namespace deepfreeze {
namespace {

// The first words of the lines that --help prints under a title.
std::vector<std::string> words_under(const std::string& title, const std::string& help) {
  std::vector<std::string> words;
  std::istringstream lines(help.substr(std::min(help.find(title), help.size())));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.empty()) {
    if (line.starts_with("  ") && line[2] != ' ')
      words.push_back(line.substr(2, line.find_first_of(" ,", 2) - 2));
  }
  return words;
}

std::vector<std::string> verbs_of_help() {
  return words_under("Subcommands:", call({"--help"}).out);
}

const ProgramDescription& program() {
  static const ProgramDescription description = describe_program();
  return description;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// As groff wants it.
std::string with_escaped_dashes(const std::string& text) {
  std::string out;
  for (const char each : text) out += each == '-' ? "\\-" : std::string(1, each);
  return out;
}

TEST(Documents, NameEveryVerbThatHelpLists) {
  const std::vector<std::string> verbs = verbs_of_help();
  ASSERT_GT(verbs.size(), 20U);
  ASSERT_EQ(program().verbs.size(), verbs.size());
  const std::string manual = manual_page(program());
  for (const std::string& verb : verbs) {
    EXPECT_TRUE(has(manual, ".BR deepfreeze\\-" + with_escaped_dashes(verb) + " (1)\n")) << verb;
    EXPECT_TRUE(has(bash_completion(program()), "      " + verb + ") words=")) << verb;
    EXPECT_TRUE(has(zsh_completion(program()), "    '" + verb + ":")) << verb;
    EXPECT_TRUE(has(zsh_completion(program()), "    " + verb + ")\n")) << verb;
    EXPECT_TRUE(has(fish_completion(program()), "__fish_use_subcommand -f -a " + verb + " "))
        << verb;
  }
}

TEST(Documents, NameEveryOptionThatHelpLists) {
  std::size_t count = 0;
  for (const VerbDescription& verb : program().verbs) {
    if (verb.takes_anything) continue;
    const std::string manual = manual_page(program(), verb);
    for (const std::string& line : words_under("Options:", call({verb.name, "--help"}).out)) {
      const std::string option = line == "-h" ? "--help" : line;
      EXPECT_TRUE(has(manual, with_escaped_dashes(option) + "\\fR")) << verb.name << option;
      EXPECT_TRUE(
          has(fish_completion(program()), "from " + verb.name + "' -l " + option.substr(2) + ' '))
          << verb.name << option;
      ++count;
    }
  }
  EXPECT_GT(count, 50U);
}

const ProgramDescription kOdd{
    .name = "odd",
    .what = "Does it",
    .version = "odd 1",
    .verbs = {
        {.name = "go-on",
         .what = "Goes on: 'far'",
         .footer = ".begins with a dot\n'and an apostrophe, C:\\x\n--json: {a,\n  b}",
         .arguments = {{.names = {"-r", "--rate"},
                        .value = "UINT",
                        .range = "in [1 - 9]",
                        .preset = "7",
                        .help = "It's [so]: fast",
                        .required = true},
                       {.value = "RUN", .help = "The run", .required = true, .repeated = true},
                       {.value = "KEY", .help = "The key"}}}}};

TEST(ManualPage, KeepsTextFromBeingRequests) {
  const std::string page = manual_page(kOdd, kOdd.verbs[0]);
  EXPECT_TRUE(has(page, "\n\\&.begins with a dot\n\\&'and an apostrophe, C:\\ex\n")) << page;
  EXPECT_TRUE(has(page, ".TH \"ODD\\-GO\\-ON\" \"1\" \"\" \"odd 1\"")) << page;
  EXPECT_TRUE(has(page, ".SH \"JSON OUTPUT\"\n.nf\n\\-\\-json: {a,\n  b}\n.fi\n")) << page;
}

TEST(ManualPage, TellsHowArgumentsAreGiven) {
  const std::string page = manual_page(kOdd, kOdd.verbs[0]);
  EXPECT_TRUE(has(page, "[\\fIOPTION\\fR...] \\fIRUN\\fR... [\\fIKEY\\fR]\n")) << page;
  EXPECT_TRUE(has(page, "\\fB\\-r, \\-\\-rate\\fR \\fIUINT\\fR\n")) << page;
  EXPECT_TRUE(has(page, "fast (required; in [1 \\- 9]; otherwise 7)\n")) << page;
}

TEST(Completion, QuotesWhatShellsWouldRead) {
  EXPECT_TRUE(has(zsh_completion(kOdd), "'go-on:Goes on\\: '\\''far'\\'''\n"))
      << zsh_completion(kOdd);
  EXPECT_TRUE(has(zsh_completion(kOdd), "'--rate[It'\\''s \\[so\\]\\: fast]:UINT:_files'"));
  EXPECT_TRUE(has(fish_completion(kOdd), "-l rate -r -d 'It\\'s [so]: fast'\n"))
      << fish_completion(kOdd);
  EXPECT_TRUE(has(fish_completion(kOdd), "-s r -r -d "));
  EXPECT_TRUE(has(bash_completion(kOdd), "go-on) words=\"-r --rate\" ;;\n"))
      << bash_completion(kOdd);
}

}  // namespace
}  // namespace deepfreeze
