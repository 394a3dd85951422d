#include "object/http.h"

#include <algorithm>

namespace deepfreeze {

std::optional<std::string_view> HttpResponse::field(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &HttpField::name);
  if (found == fields.end()) return std::nullopt;
  return found->value;
}

}  // namespace deepfreeze
