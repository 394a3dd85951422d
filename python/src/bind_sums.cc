// Sums over the elements of a tensor, for `deepfreeze explore`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "deepfreeze/tensor_sums.h"
#include "errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

class Sums {
 public:
  Sums(const std::string& dtype, std::size_t stride) : stride_(stride) {
    const auto found = dtype_from_name(dtype);
    if (!found) raise(Error(ErrorCode::kInvalidArgument, "sums: no stored dtype is called so"));
    dtype_ = *found;
  }

  // Addresses of host memory that the caller keeps; `earlier` may be 0.
  void add(std::uintptr_t address, std::uintptr_t earlier, std::size_t bytes) {
    const nb::gil_scoped_release released;
    const auto span_at = [bytes](std::uintptr_t place) {
      return std::span(reinterpret_cast<const std::byte*>(place), place == 0 ? 0 : bytes);
    };
    compared_ |= earlier != 0;
    add_to_sums(sums_, dtype_, span_at(address), span_at(earlier), stride_);
  }

  [[nodiscard]] const TensorSums& sums() const { return sums_; }
  [[nodiscard]] bool compared() const { return compared_; }

 private:
  DType dtype_ = DType::kU8;
  std::size_t stride_;
  bool compared_ = false;
  TensorSums sums_;
};

nb::list exponents_of(const Sums& self) {
  nb::list counts;
  for (const std::uint64_t count : self.sums().exponents) counts.append(count);
  return counts;
}

// Binds a member of TensorSums under its name.
template <auto kMember>
void def_sum(nb::class_<Sums>& sums, const char* name) {
  sums.def_prop_ro(name, [](const Sums& self) { return self.sums().*kMember; });
}

}  // namespace

void bind_sums(nb::module_& module) {
  nb::class_<Sums> sums(module, "TensorSums");
  sums.def(nb::init<const std::string&, std::size_t>(), "dtype"_a, "stride"_a)
      .def("add", &Sums::add, "address"_a, "earlier"_a, "bytes"_a)
      .def_prop_ro("compared", &Sums::compared)
      .def_prop_ro("exponents", &exponents_of);
  def_sum<&TensorSums::min>(sums, "min");
  def_sum<&TensorSums::max>(sums, "max");
  def_sum<&TensorSums::sum>(sums, "sum");
  def_sum<&TensorSums::squares>(sums, "squares");
  def_sum<&TensorSums::finite>(sums, "finite");
  def_sum<&TensorSums::zeros>(sums, "zeros");
  def_sum<&TensorSums::non_finite>(sums, "non_finite");
  def_sum<&TensorSums::own_squares>(sums, "own_squares");
  def_sum<&TensorSums::earlier_squares>(sums, "earlier_squares");
  def_sum<&TensorSums::delta_squares>(sums, "delta_squares");
  def_sum<&TensorSums::dot>(sums, "dot");
  def_sum<&TensorSums::changed>(sums, "changed");
  module.attr("EXPONENT_FIRST") = kExponentFirst;
  module.attr("EXPONENT_BINS") = kExponentBins;
}

}  // namespace deepfreeze::python
