// Many inputs in one text file: one a line, in printable ASCII, with \n, \\ and \xNN for the rest.
// Lines that begin with '#' are comments. So a corpus is a few files, and a change of it readable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deepfreeze {

[[nodiscard]] std::string escape_input(std::string_view input);
[[nodiscard]] std::string unescape_input(std::string_view line);

[[nodiscard]] std::vector<std::string> parse_corpus(std::string_view text);
// Sorted, shortest first, each once.
[[nodiscard]] std::string write_corpus(std::vector<std::string> inputs);

}  // namespace deepfreeze
