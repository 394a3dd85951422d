#include "fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/try.h"

namespace deepfreeze::simulation {

using nlohmann::json;

Fields::Fields(const json& object, std::string path) : object_(&object), path_(std::move(path)) {}

std::unexpected<Error> Fields::fault(std::string_view name, std::string_view cause) const {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}{}: {}", path_, name, cause));
}

Status Fields::only(std::initializer_list<std::string_view> names) const {
  for (const auto& item : object_->items()) {
    if (std::ranges::find(names, item.key()) == names.end()) {
      return fault(item.key(), "no such field");
    }
  }
  return {};
}

Result<const json*> Fields::find(std::string_view name) const {
  const auto found = object_->find(name);
  if (found == object_->end()) return fault(name, "missing");
  return &*found;
}

Result<Fields> Fields::object(std::string_view name) const {
  DF_TRY(const json* found, find(name));
  if (!found->is_object()) return fault(name, "not an object");
  return Fields(*found, fmt::format("{}{}.", path_, name));
}

Result<const json*> Fields::array(std::string_view name) const {
  DF_TRY(const json* found, find(name));
  if (!found->is_array()) return fault(name, "not an array");
  return found;
}

Result<std::string> Fields::text(std::string_view name) const {
  DF_TRY(const json* found, find(name));
  if (!found->is_string()) return fault(name, "not a string");
  return found->get<std::string>();
}

Result<bool> Fields::flag(std::string_view name) const {
  DF_TRY(const json* found, find(name));
  if (!found->is_boolean()) return fault(name, "not true or false");
  return found->get<bool>();
}

bool Fields::is_null(std::string_view name) const {
  const auto found = object_->find(name);
  return found != object_->end() && found->is_null();
}

Result<std::uint64_t> Fields::whole(std::string_view name, Range range) const {
  DF_TRY(const json* found, find(name));
  const bool fits = found->is_number_unsigned() && found->get<std::uint64_t>() >= range.least &&
                    found->get<std::uint64_t>() <= range.most;
  if (!fits) {
    return fault(name, fmt::format("{} is not a whole number from {} to {}", found->dump(),
                                   range.least, range.most));
  }
  return found->get<std::uint64_t>();
}

Result<double> Fields::number(std::string_view name) const {
  DF_TRY(const json* found, find(name));
  if (!found->is_number() || !std::isfinite(found->get<double>())) {
    return fault(name, "not a number");
  }
  return found->get<double>();
}

Result<double> Fields::positive(std::string_view name) const {
  DF_TRY(const double value, number(name));
  if (value <= 0) return fault(name, fmt::format("{} is not above 0", value));
  return value;
}

Result<double> Fields::not_negative(std::string_view name) const {
  DF_TRY(const double value, number(name));
  if (value < 0) return fault(name, fmt::format("{} is below 0", value));
  return value;
}

}  // namespace deepfreeze::simulation
