// One request and its answer, as libcurl's callbacks take and give them. Lives while its options
// are set in a handle that runs. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "object/answer_reader.h"
#include "object/curl_library.h"
#include "object/http.h"
#include "object/url_parts.h"

namespace deepfreeze {

class CurlExchange {
 public:
  CurlExchange(const curl::Library& library, const HttpRequest& request)
      : library_(library), request_(request), answer_(request.into) {}
  CurlExchange(const CurlExchange&) = delete;
  CurlExchange& operator=(const CurlExchange&) = delete;

  // Sets all options that depend on the request. kInvalidArgument: a method or field that would
  // break out of its line.
  [[nodiscard]] Status prepare(curl::Easy* easy, const UrlParts& url);
  [[nodiscard]] const AnswerReader& answer() const { return answer_; }
  // The outcome of the exchange, from libcurl's result.
  [[nodiscard]] Result<HttpResponse> finish(int result);

 private:
  static std::size_t take_head(char* line, std::size_t size, std::size_t count, void* self);
  static std::size_t take_answer(char* bytes, std::size_t size, std::size_t count, void* self);
  static std::size_t give_body(char* into, std::size_t size, std::size_t count, void* self);
  [[nodiscard]] Status add_fields();
  [[nodiscard]] Status append(const std::string& line);

  const curl::Library& library_;
  const HttpRequest& request_;
  AnswerReader answer_;
  std::size_t body_bytes_given_ = 0;
  curl::OwnedList fields_;
  std::array<char, curl::kErrorBytes> error_{};
};

// Options of one handle, one after the other; the first error stays.
class CurlOptions {
 public:
  CurlOptions(const curl::Library& library, curl::Easy* easy) : library_(library), easy_(easy) {}
  template <class Value>
  void set(int option, Value value) {
    static_assert(sizeof(Value) == sizeof(long), "libcurl takes longs, pointers and 64-bit sizes");
    if (result_ == curl::kOk) result_ = library_.set(easy_, option, value);
  }
  [[nodiscard]] Status status() const;

 private:
  const curl::Library& library_;
  curl::Easy* const easy_;
  int result_ = curl::kOk;
};

}  // namespace deepfreeze
