// Reads a JSON object field by field. Each error names the field and its fault.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze::simulation {

struct Range {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

// Borrows the JSON that it reads.
class Fields {
 public:
  // `path`: how messages call the object, such as "machine."; empty for the whole document.
  Fields(const nlohmann::json& object, std::string path);

  // Refuses every field but these: a misspelt one would be ignored without a word.
  [[nodiscard]] Status only(std::initializer_list<std::string_view> names) const;
  [[nodiscard]] Result<Fields> object(std::string_view name) const;
  [[nodiscard]] Result<const nlohmann::json*> array(std::string_view name) const;
  [[nodiscard]] Result<std::string> text(std::string_view name) const;
  [[nodiscard]] Result<bool> flag(std::string_view name) const;
  [[nodiscard]] bool is_null(std::string_view name) const;  // and not missing
  [[nodiscard]] Result<std::uint64_t> whole(std::string_view name, Range range) const;
  [[nodiscard]] Result<double> positive(std::string_view name) const;
  [[nodiscard]] Result<double> not_negative(std::string_view name) const;

  [[nodiscard]] std::unexpected<Error> fault(std::string_view name, std::string_view cause) const;

 private:
  [[nodiscard]] Result<const nlohmann::json*> find(std::string_view name) const;
  [[nodiscard]] Result<double> number(std::string_view name) const;

  const nlohmann::json* object_;
  std::string path_;
};

}  // namespace deepfreeze::simulation
