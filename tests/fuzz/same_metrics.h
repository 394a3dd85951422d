// Equality of records with metrics: NaN is a value like any other here. Pure.
#pragma once

#include <cmath>

#include "format/records.h"

namespace deepfreeze {

// NaN replaced by a number that no input spells.
inline void spell_nan(Annotations& annotations) {
  for (auto& [name, value] : annotations.metrics) {
    if (std::isnan(value)) value = 0x1.23456789abcdep-1000;
  }
}

template <class Annotated>
[[nodiscard]] bool same_but_nan(Annotated a, Annotated b) {
  spell_nan(a.annotations);
  spell_nan(b.annotations);
  return a == b;
}

}  // namespace deepfreeze
