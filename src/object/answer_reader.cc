#include "object/answer_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "object/url_parts.h"

namespace deepfreeze {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

bool AnswerReader::take_head(std::string_view line) {
  head_bytes_ += line.size();
  if (head_bytes_ > kHttpHeadBytesMax) {
    return refuse(fmt::format("the answer's head has more than {} bytes", kHttpHeadBytesMax));
  }
  if (line.starts_with("HTTP/")) {
    begin(line);
    return true;
  }
  is_head_whole_ = is_head_whole_ || without_blanks(line).empty();
  const std::size_t name_end = line.find(':');
  if (name_end == std::string_view::npos) return true;
  answer_.fields.push_back({.name = lower_case(line.substr(0, name_end)),
                            .value = std::string(without_blanks(line.substr(name_end + 1)))});
  return true;
}

void AnswerReader::begin(std::string_view status_line) {
  answer_.fields.clear();
  is_head_whole_ = false;
  const std::size_t number = std::min(status_line.find(' '), status_line.size() - 1) + 1;
  answer_.status = 0;
  std::from_chars(status_line.data() + number, status_line.data() + status_line.size(),
                  answer_.status);
}

bool AnswerReader::take_body(std::string_view bytes) {
  if (!fills_into()) {
    if (bytes.size() > kHttpBodyBytesMax - answer_.body.size()) {
      return refuse(fmt::format("the answer has more than {} bytes", kHttpBodyBytesMax));
    }
    answer_.body += bytes;
    return true;
  }
  const std::span<std::byte> left = into_.subspan(answer_.into_bytes);
  if (bytes.size() > left.size()) {
    return refuse(fmt::format("the answer has more than the {} bytes asked for", into_.size()));
  }
  if (!bytes.empty()) std::memcpy(left.data(), bytes.data(), bytes.size());
  answer_.into_bytes += bytes.size();
  return true;
}

Result<HttpResponse> AnswerReader::finish() {
  if (!is_head_whole_) return fail(ErrorCode::kIo, "the answer ends within its head");
  if (fills_into() && !answer_.field("content-length") && !answer_.field("transfer-encoding")) {
    return fail(ErrorCode::kIo, "the answer does not say how long it is");
  }
  return std::move(answer_);
}

bool AnswerReader::refuse(std::string why) {
  refusal_ = std::move(why);
  return false;
}

}  // namespace deepfreeze
