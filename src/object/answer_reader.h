// Takes an answer's head line by line and its body piece by piece, as libcurl hands them over,
// within the bounds of http.h. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "object/http.h"

namespace deepfreeze {

class AnswerReader {
 public:
  // `into` as in HttpRequest.
  explicit AnswerReader(std::span<std::byte> into) : into_(into) {}

  // False: the answer is refused, and refusal() says why. A status line begins a new head: those
  // before it were of interim answers, or of a proxy.
  [[nodiscard]] bool take_head(std::string_view line);
  [[nodiscard]] bool take_body(std::string_view bytes);
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] std::uint64_t head_bytes() const { return head_bytes_; }  // of all heads

  // After the end of the answer. kIo: its head is cut, or its end can't be told from a connection
  // that was cut, and `into` is not to be trusted. libcurl takes both for whole.
  [[nodiscard]] Result<HttpResponse> finish();

 private:
  bool refuse(std::string why);
  void begin(std::string_view status_line);
  [[nodiscard]] bool fills_into() const { return !into_.empty() && answer_.is_success(); }

  const std::span<std::byte> into_;
  HttpResponse answer_;
  std::uint64_t head_bytes_ = 0;
  bool is_head_whole_ = false;
  std::string refusal_;
};

}  // namespace deepfreeze
