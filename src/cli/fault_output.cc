#include "cli/fault_output.h"

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

#include "cli/output.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kNamedMax = 8;  // blocks and tensors of one fault, for people

template <class T>
std::string first_of(const std::vector<T>& items) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(items.size(), kNamedMax));
  const std::vector<T> first(items.begin(), items.begin() + count);
  const char* more = items.size() > kNamedMax ? ", …" : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

}  // namespace

std::string some_of(const std::vector<std::string>& items) { return first_of(items); }

void print_fault(std::ostream& out, const Fault& fault) {
  fmt::print(out, "  {}: {}\n", readable(fault.file), readable(fault.cause));
  if (!fault.blocks.empty()) {
    fmt::print(out, "    blocks {}\n    tensors {}\n", first_of(fault.blocks),
               readable(first_of(fault.tensors)));
  }
  for (const std::string& path : fault.also_in) {
    fmt::print(out, "    also the file of {}\n", readable(path));
  }
}

void write_fault(JsonWriter& json, const Fault& fault) {
  json.begin_object();
  json.members("file", fault.file, "cause", fault.cause, "blocks", fault.blocks, "tensors",
               fault.tensors);
  if (!fault.also_in.empty()) json.members("also_in", fault.also_in);
  json.end_object();
}

}  // namespace deepfreeze
