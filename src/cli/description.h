// The verbs, options and help texts that the parser knows: manual pages and completions are made
// from them.
#pragma once

#include <string>
#include <vector>

namespace deepfreeze {

struct ArgumentDescription {
  std::vector<std::string> names;  // with their dashes; empty if it goes by its place
  std::string value;               // RUN, UINT; empty: a flag
  std::string range;               // "in [1 - 9]"; usually empty
  std::string preset;              // the value that it has otherwise, if help tells it
  std::string help;
  bool required = false;
  bool repeated = false;
};

struct VerbDescription {
  std::string name;
  std::string what;
  std::string footer;
  std::vector<ArgumentDescription> arguments;  // in the order of help
  bool takes_anything = false;                 // another program has its arguments
};

struct ProgramDescription {
  std::string name;
  std::string what;
  std::string version;  // as --version prints it
  std::string footer;
  std::vector<ArgumentDescription> arguments;
  std::vector<VerbDescription> verbs;
};

}  // namespace deepfreeze
