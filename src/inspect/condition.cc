#include "inspect/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kOperatorBytes = "<>=!";
constexpr std::string_view kQuotes = "\"'";
constexpr std::string_view kTagPrefix = "tag.";
constexpr std::string_view kMetricPrefix = "metric.";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_word_byte(char c) {
  return !is_space(c) && kOperatorBytes.find(c) == std::string_view::npos &&
         kQuotes.find(c) == std::string_view::npos;
}

std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A tag's text may be a number.
std::optional<double> number_in(const FieldValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* text = std::get_if<std::string_view>(&value)) return number_of(*text);
  return std::nullopt;
}

struct Token {
  enum class Kind : std::uint8_t { kWord, kOperator, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;
  std::size_t place = 0;  // of its first byte
  bool is_quoted = false;
};

std::string shown(const Token& token) {
  return token.kind == Token::Kind::kEnd ? "the end" : fmt::format("'{}'", printable(token.text));
}

}  // namespace

Result<Field> Field::parse(std::string_view name) {
  Field field;
  field.name_ = name;
  if (name == "step") field.kind_ = Kind::kStep;
  if (name == "steps") field.kind_ = Kind::kSteps;
  if (name == "bytes") field.kind_ = Kind::kBytes;
  if (name.starts_with(kTagPrefix)) {
    field.kind_ = Kind::kTag;
    field.name_ = name.substr(kTagPrefix.size());
  }
  if (name.starts_with(kMetricPrefix)) field.name_ = name.substr(kMetricPrefix.size());
  if (!field.name_.empty()) return field;
  return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' names nothing", printable(name)));
}

FieldValue Field::of(const Subject& subject) const {
  switch (kind_) {
    case Kind::kStep:
      return static_cast<double>(subject.step);
    case Kind::kSteps:
      return static_cast<double>(subject.steps);
    case Kind::kBytes:
      return static_cast<double>(subject.bytes);
    case Kind::kTag:
      if (const auto tag = subject.tags->find(name_); tag != subject.tags->end()) {
        return std::string_view(tag->second);
      }
      return {};
    case Kind::kMetric:
      break;
  }
  const auto metric = subject.metrics->find(name_);
  return metric == subject.metrics->end() ? FieldValue() : FieldValue(metric->second);
}

bool comes_before(const FieldValue& a, const FieldValue& b) {
  const auto left = number_in(a);
  const auto right = number_in(b);
  // NaN is no number that could be sorted: it comes after all others.
  const auto rank = [](const FieldValue& value, const std::optional<double>& number) {
    if (number) return *number == *number ? 0 : 1;
    return std::holds_alternative<std::string_view>(value) ? 2 : 3;
  };
  const int left_rank = rank(a, left);
  const int right_rank = rank(b, right);
  if (left_rank != right_rank) return left_rank < right_rank;
  if (left_rank == 0) return *left < *right;
  return left_rank == 2 && std::get<std::string_view>(a) < std::get<std::string_view>(b);
}

// From left to right, one token ahead.
class ConditionParser {
 public:
  explicit ConditionParser(std::string_view text) : text_(text) {}

  Result<Condition> parse() {
    Condition condition;
    DF_TRY_VOID(advance());
    while (true) {
      DF_TRY(condition.all_.emplace_back(), comparison());
      if (next_.kind == Token::Kind::kEnd) return condition;
      if (next_.text != "and" || next_.is_quoted) return expected("'and' or the end");
      DF_TRY_VOID(advance());
    }
  }

 private:
  using Operator = Condition::Operator;

  Result<Condition::Comparison> comparison() {
    Condition::Comparison one;
    if (next_.kind != Token::Kind::kWord) return expected("a name");
    auto field = Field::parse(next_.text);
    if (!field) return wrong(next_, field.error().message());
    one.field = *std::move(field);
    DF_TRY_VOID(advance());
    DF_TRY(one.compare, compare());
    if (next_.kind != Token::Kind::kWord) return expected("a value");
    if (one.field.is_number() && !number_of(next_.text)) return expected("a number");
    one.value = next_.text;
    one.is_quoted = next_.is_quoted;
    DF_TRY_VOID(advance());
    return one;
  }

  Result<Operator> compare() {
    constexpr std::pair<std::string_view, Operator> kAll[] = {
        {"<", Operator::kLess},       {"<=", Operator::kLessEqual}, {">", Operator::kMore},
        {">=", Operator::kMoreEqual}, {"=", Operator::kEqual},      {"==", Operator::kEqual},
        {"!=", Operator::kNotEqual}};
    for (const auto& [text, compare] : kAll) {
      if (next_.kind != Token::Kind::kOperator || next_.text != text) continue;
      DF_TRY_VOID(advance());
      return compare;
    }
    return expected("one of < <= > >= = !=");
  }

  Status advance() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    next_ = Token{.kind = Token::Kind::kEnd, .text = {}, .place = at_};
    if (at_ == text_.size()) return {};
    if (kQuotes.find(text_[at_]) != std::string_view::npos) return advance_quoted();
    const bool is_word = is_word_byte(text_[at_]);
    const auto ends = [&](char c) {
      return is_word ? !is_word_byte(c) : kOperatorBytes.find(c) == std::string_view::npos;
    };
    const auto end =
        std::find_if(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.end(), ends);
    next_.kind = is_word ? Token::Kind::kWord : Token::Kind::kOperator;
    next_.text = text_.substr(at_, static_cast<std::size_t>(end - text_.begin()) - at_);
    at_ += next_.text.size();
    return {};
  }

  Status advance_quoted() {
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) {
      next_.text = text_.substr(at_);
      return wrong(next_, "the quote has no end");
    }
    next_ = {.kind = Token::Kind::kWord,
             .text = text_.substr(at_ + 1, end - at_ - 1),
             .place = at_,
             .is_quoted = true};
    at_ = end + 1;
    return {};
  }

  [[nodiscard]] std::unexpected<Error> expected(std::string_view what) const {
    return wrong(next_, fmt::format("{} should be here, not {}", what, shown(next_)));
  }
  [[nodiscard]] std::unexpected<Error> wrong(const Token& token, const std::string& why) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("condition '{}', at character {}: {}",
                                                         printable(text_), token.place + 1, why));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Token next_;
};

Result<Condition> Condition::parse(std::string_view text) { return ConditionParser(text).parse(); }

bool Condition::holds(const Comparison& comparison, const Subject& subject) {
  const FieldValue found = comparison.field.of(subject);
  if (std::holds_alternative<std::monostate>(found)) return false;
  if (const auto* text = std::get_if<std::string_view>(&found)) {
    if (comparison.compare == Operator::kEqual) return *text == comparison.value;
    if (comparison.compare == Operator::kNotEqual) return *text != comparison.value;
    if (comparison.is_quoted) return false;
  }
  const auto left = number_in(found);
  const auto right = number_of(comparison.value);
  if (!left || !right) return false;
  switch (comparison.compare) {
    case Operator::kLess:
      return *left < *right;
    case Operator::kLessEqual:
      return *left <= *right;
    case Operator::kMore:
      return *left > *right;
    case Operator::kMoreEqual:
      return *left >= *right;
    case Operator::kEqual:
      return *left == *right;
    case Operator::kNotEqual:
      break;
  }
  return *left != *right;
}

bool Condition::holds(const Subject& subject) const {
  return std::ranges::all_of(all_, [&](const Comparison& one) { return holds(one, subject); });
}

}  // namespace deepfreeze
