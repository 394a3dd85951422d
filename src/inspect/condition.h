// Conditions on checkpoints and keys to sort them by, as people write them:
//
//   loss<0.2 and tag.lr=3e-4 and step>=1000
//
//   condition  = comparison { "and" comparison }
//   comparison = name ( "<" | "<=" | ">" | ">=" | "=" | "==" | "!=" ) value
//   name       = word, which is "step", "steps", "bytes", "tag." and a tag's name, "metric." and a
//                metric's name, or a metric's name alone
//   value      = word
//   word       = characters but white space, quotes, "<", ">", "=" and "!"; or any characters
//                between two quotes, single or double: the whole word, as in "metric.my loss"<1
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

// The facts that a condition is about: a checkpoint, and facts that are listed with it. Borrows.
struct Subject {
  std::uint64_t step = 0;
  std::uint64_t steps = 0;  // checkpoints of its run
  std::uint64_t bytes = 0;  // of the listed row: a checkpoint or a whole run
  const std::map<std::string, double>* metrics = nullptr;  // never null
  const std::map<std::string, std::string>* tags = nullptr;
};

// Nothing: the checkpoint has no such metric or tag.
using FieldValue = std::variant<std::monostate, double, std::string_view>;

class Field {
 public:
  // kInvalidArgument: an empty name.
  [[nodiscard]] static Result<Field> parse(std::string_view name);
  [[nodiscard]] FieldValue of(const Subject& subject) const;
  [[nodiscard]] bool is_number() const { return kind_ != Kind::kTag; }

 private:
  enum class Kind : std::uint8_t { kStep, kSteps, kBytes, kTag, kMetric };
  Kind kind_ = Kind::kMetric;
  std::string name_;  // of a tag or metric
};

// Whether `a` comes before `b` in a list by this field: numbers, then texts, then nothing. Tags
// that are numbers count as such.
[[nodiscard]] bool comes_before(const FieldValue& a, const FieldValue& b);

class Condition {
 public:
  // kInvalidArgument: the message names the place.
  [[nodiscard]] static Result<Condition> parse(std::string_view text);
  // A comparison with something that the checkpoint does not have is false, and so is one of NaN
  // but for "!=". Of a tag, "=" and "!=" compare texts, since 1.10 may be a version: another one
  // than 1.1. "<" and the like compare numbers, and are false if a side is none, or if the value is
  // in quotes.
  [[nodiscard]] bool holds(const Subject& subject) const;

 private:
  enum class Operator : std::uint8_t { kLess, kLessEqual, kMore, kMoreEqual, kEqual, kNotEqual };
  struct Comparison {
    Field field;
    Operator compare = Operator::kEqual;
    std::string value;
    bool is_quoted = false;
  };
  friend class ConditionParser;

  [[nodiscard]] static bool holds(const Comparison& comparison, const Subject& subject);

  std::vector<Comparison> all_;
};

}  // namespace deepfreeze
