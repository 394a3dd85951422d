#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "errors.h"
#include "homes.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

using Extent = std::pair<std::uintptr_t, std::size_t>;  // an address, and a number of bytes

bool are_apart(const std::vector<const Homes*>& all, const std::vector<Extent>& others) {
  std::vector<MemorySpan> spans;
  spans.reserve(others.size());
  for (const auto& [address, bytes] : others) {
    if (bytes > 0) spans.push_back({address, address + bytes});
  }
  return Homes::are_apart(all, std::move(spans));
}

}  // namespace

void bind_homes(nb::module_& module) {
  nb::class_<Homes>(module, "Homes")
      .def(nb::init<const OpenCheckpoint&, const nb::list&, const nb::list&>(), "checkpoint"_a,
           "keys"_a, "tensors"_a)
      .def_prop_ro("others", &Homes::others)
      .def_prop_ro("bytes", &Homes::bytes)
      .def_prop_ro("addresses", &Homes::addresses)
      .def_static("are_apart", &are_apart, "all"_a, "others"_a);
}

}  // namespace deepfreeze::python
