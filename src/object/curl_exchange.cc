#include "object/curl_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/printable.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kSendBufferBytes = 2U << 20U;  // a tenth less CPU than libcurl's 64 KiB
constexpr std::size_t kReceiveBufferBytes = 256U << 10U;

bool is_one_line(std::string_view text) {
  return std::ranges::none_of(
      text, [](char letter) { return letter == '\r' || letter == '\n' || letter == '\0'; });
}

bool is_token(std::string_view name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  return !name.empty() &&
         std::ranges::all_of(name, [&](char letter) { return kLetters.contains(letter); });
}

ErrorCode code_for(int result) {
  switch (result) {
    case curl::kTimedOut:
      return ErrorCode::kTimeout;
    case curl::kMalformedUrl:
    case curl::kRefusedCertificate:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Status CurlOptions::status() const {
  if (result_ == curl::kOk) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("libcurl refuses an option: {}", library_.result_text(result_)));
}

// These defaults of libcurl are wanted: redirections are not followed, certificates are checked,
// and there are no cookies, no .netrc, no content codings and no HTTP/0.9.
Status CurlExchange::prepare(curl::Easy* easy, const UrlParts& url) {
  if (!is_token(request_.method)) {
    return fail(ErrorCode::kInvalidArgument, "the method is no word");
  }
  DF_TRY_VOID(add_fields());
  CurlOptions options(library_, easy);
  options.set(curl::kUrl, request_.url.c_str());
  options.set(curl::kMethod, request_.method.c_str());
  options.set(curl::kHeaderFields, fields_.get());
  options.set(curl::kErrorBuffer, error_.data());
  options.set(curl::kConnectMilliseconds, static_cast<long>(kHttpConnectMax.count()));
  // The usual variables of the environment name a proxy, but these hosts are never behind one.
  if (is_loopback(url.host) || is_metadata(url.host)) options.set(curl::kProxy, "");
  options.set(curl::kTakeHead, &CurlExchange::take_head);
  options.set(curl::kHeadData, static_cast<void*>(this));
  options.set(curl::kTakeAnswer, &CurlExchange::take_answer);
  options.set(curl::kAnswerData, static_cast<void*>(this));
  options.set(curl::kReceiveBytes, static_cast<long>(kReceiveBufferBytes));
  if (request_.method == "HEAD") {
    options.set(curl::kNoBody, 1L);
  } else if (!request_.body.empty() || request_.method == "PUT" || request_.method == "POST") {
    options.set(curl::kUpload, 1L);
    options.set(curl::kSendBytes, static_cast<long>(kSendBufferBytes));
    options.set(curl::kBodyBytes, static_cast<std::int64_t>(request_.body.size()));
    options.set(curl::kGiveBody, &CurlExchange::give_body);
    options.set(curl::kBodyData, static_cast<void*>(this));
  }
  return options.status();
}

// Fields that libcurl adds by itself are left out, unless the request has them.
Status CurlExchange::add_fields() {
  DF_TRY_VOID(append("accept:"));
  DF_TRY_VOID(append("expect:"));
  for (const HttpField& field : request_.fields) {
    if (!is_token(field.name) || !is_one_line(field.value)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the field {} has a letter that HTTP forbids", printable(field.name)));
    }
    // libcurl's way to say that a field is there, but empty.
    DF_TRY_VOID(append(field.value.empty() ? field.name + ";" : field.name + ": " + field.value));
  }
  return {};
}

Status CurlExchange::append(const std::string& line) {
  curl::List* const longer = library_.append(fields_.get(), line.c_str());
  if (longer == nullptr) return fail(ErrorCode::kIo, "no memory for the request's fields");
  std::ignore = fields_.release();  // the list that begins at `longer` has it
  fields_ = curl::OwnedList(longer, {&library_});
  return {};
}

Result<HttpResponse> CurlExchange::finish(int result) {
  if (!answer_.refusal().empty()) return fail(ErrorCode::kIo, answer_.refusal());
  if (result == curl::kOk) return answer_.finish();
  const std::string_view told = error_.data();
  return fail(code_for(result), printable(told.empty() ? library_.result_text(result) : told));
}

std::size_t CurlExchange::take_head(char* line, std::size_t size, std::size_t count, void* self) {
  auto& answer = static_cast<CurlExchange*>(self)->answer_;
  return answer.take_head({line, size * count}) ? size * count : 0;
}

std::size_t CurlExchange::take_answer(char* bytes, std::size_t size, std::size_t count,
                                      void* self) {
  auto& answer = static_cast<CurlExchange*>(self)->answer_;
  return answer.take_body({bytes, size * count}) ? size * count : 0;
}

std::size_t CurlExchange::give_body(char* into, std::size_t size, std::size_t count, void* self) {
  auto& exchange = *static_cast<CurlExchange*>(self);
  const auto left = exchange.request_.body.subspan(exchange.body_bytes_given_);
  const std::size_t bytes = std::min(left.size(), size * count);
  if (bytes > 0) std::memcpy(into, left.data(), bytes);
  exchange.body_bytes_given_ += bytes;
  return bytes;
}

}  // namespace deepfreeze
