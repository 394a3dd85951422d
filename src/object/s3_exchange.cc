// A request is tried again, up to kTriesMax times, if no answer came or if the answer says that the
// store can't do it now: after a pause that is drawn at random below a bound which doubles. Three
// answers have a remedy of their own, which is tried once, without a pause: other keys, the store's
// clock, the bucket's region.
#include "object/s3_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random_id.h"
#include "base/try.h"
#include "object/s3_text.h"
#include "object/signature.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kSignedBodyBytesMax = 1U << 20U;
constexpr std::chrono::minutes kSkewMax{15};    // beyond it S3 refuses a signature
constexpr std::chrono::milliseconds kNap{100};  // between two looks at stopped_
constexpr std::chrono::milliseconds kCleanupSilenceMax{5'000};

std::chrono::milliseconds random_pause(int tries) {
  const auto bound = std::min(kRetryPauseMin * (1 << (tries - 1)), kRetryPauseMax);
  return std::chrono::milliseconds(random_id() % static_cast<std::uint64_t>(bound.count() + 1));
}

std::chrono::milliseconds asked_pause(const HttpResponse* answer) {
  const auto field = answer == nullptr ? std::nullopt : answer->field("retry-after");
  const auto seconds = field ? parse_number(*field) : std::nullopt;
  if (!seconds) return {};
  const std::uint64_t bound = std::chrono::ceil<std::chrono::seconds>(kRetryPauseMax).count();
  return std::chrono::seconds(std::min(*seconds, bound));
}

// "https://s3.us-east-1.amazonaws.com" is another host in another region; a store elsewhere is not.
void move_to_region(ObjectPlace& place, const std::string& region) {
  const std::string old = "." + place.region + ".";
  const std::size_t at = place.endpoint.find(old);
  if (at != std::string::npos) place.endpoint.replace(at, old.size(), "." + region + ".");
  place.region = region;
}

// kNotFound would say that the key is not there.
std::unexpected<Error> no_keys(const Error& error, const std::string& what) {
  const bool has_none = error.code() == ErrorCode::kNotFound;
  return fail(has_none ? ErrorCode::kInvalidArgument : error.code(),
              fmt::format("{}: {}", what, error.message()));
}

bool may_pass(const Error& error) {
  return error.code() == ErrorCode::kIo || error.code() == ErrorCode::kTimeout;
}

}  // namespace

bool RetryBudget::take() {
  const std::lock_guard lock(mutex_);
  if (tokens_ < kRetryCost) return false;
  tokens_ -= kRetryCost;
  return true;
}

void RetryBudget::give_back(bool was_retried) {
  const std::lock_guard lock(mutex_);
  tokens_ = std::min(tokens_ + (was_retried ? kRetryCost : 1), kTokensMax);
}

struct S3Exchange::Tries {
  int count = 0;  // with a pause behind each
  bool may_have_acted = false;
  bool has_changed_keys = false;
  bool has_changed_clock = false;
  bool has_changed_region = false;
  Credentials credentials = {};  // of the last try
  SystemTime signed_at = {};
};

S3Exchange::S3Exchange(S3Client::Settings settings)
    : settings_(std::move(settings)), signed_place_(settings_.place) {}

std::chrono::system_clock::time_point S3Exchange::now() const {
  const std::lock_guard lock(mutex_);
  return settings_.time.now() + clock_offset_;
}

std::string S3Exchange::name_of(const S3Request& request) const {
  return fmt::format("{} {}{}{}", request.operation, place().url(), request.key.empty() ? "" : "/",
                     request.key);
}

Result<HttpResponse> S3Exchange::send(const S3Request& request, Tries& tries) {
  const bool ends_soon = request.is_cleanup && is_stopped();
  if (is_stopped() && !ends_soon) {
    return fail(ErrorCode::kCancelled, name_of(request) + ": stopped");
  }
  ObjectPlace place;
  {
    const std::lock_guard lock(mutex_);
    place = signed_place_;
  }
  HttpRequest http{.method = std::string(request.method),
                   .url = place.request_url(request.key, request.query),
                   .fields = request.fields,
                   .body = request.body,
                   .into = request.into,
                   .silence_max = ends_soon ? kCleanupSilenceMax : request.silence_max,
                   .stop = ends_soon ? nullptr : &stopped_};
  const SigningScope scope{.region = place.region,
                           .signs_body = request.body.size() <= kSignedBodyBytesMax};
  tries.signed_at = now();
  DF_TRY_VOID(sign(http, tries.credentials, scope, tries.signed_at));
  return settings_.transport->send(http);
}

Result<S3Answer> S3Exchange::perform(const S3Request& request) {
  Tries tries;
  while (true) {
    ++tries.count;
    auto credentials = settings_.credentials->get();
    if (!credentials) {  // nothing was sent
      const auto error = no_keys(credentials.error(), name_of(request));
      if (!may_pass(error.error())) return error;
      DF_TRY_VOID(pause(request, nullptr, tries, error.error()));
      continue;
    }
    tries.credentials = *std::move(credentials);
    auto sent = send(request, tries);
    if (!sent) {
      if (!may_pass(sent.error())) return std::unexpected(std::move(sent).error());
      tries.may_have_acted = true;
      DF_TRY_VOID(pause(request, nullptr, tries, sent.error().within(name_of(request))));
      continue;
    }
    S3Answer answer{.response = *std::move(sent)};
    answer.may_have_acted_before = tries.may_have_acted;
    answer.failure = find_failure(answer.response, request.may_fail_in_body);
    DF_TRY(const bool is_again, goes_on(request, answer, tries));
    if (!is_again) return answer;
  }
}

Result<HttpResponse> S3Exchange::ask(const S3Request& request) {
  DF_TRY(S3Answer answer, perform(request));
  if (answer.failure) return std::unexpected(error_of(*answer.failure, name_of(request)));
  return std::move(answer.response);
}

Result<bool> S3Exchange::goes_on(const S3Request& request, const S3Answer& answer, Tries& tries) {
  if (!answer.failure) {
    const std::string fault = request.find_fault ? request.find_fault(answer.response) : "";
    if (fault.empty()) {
      budget_.give_back(tries.count > 1);
      return false;
    }
    tries.may_have_acted = true;
    const Error cause(ErrorCode::kIo, fmt::format("{}: {}", name_of(request), fault));
    DF_TRY_VOID(pause(request, nullptr, tries, cause));
    return true;
  }
  switch (remedy_for(*answer.failure)) {
    case Remedy::kNone:
      return answer.failure->status == 403 && answer.failure->code.empty() &&
             is_skewed(answer.response, tries) && change_clock(answer.response, tries);
    case Remedy::kKeys:
      return change_keys(tries);
    case Remedy::kClock:
      return change_clock(answer.response, tries);
    case Remedy::kRegion:
      return change_region(answer.failure->region, tries);
    case Remedy::kWait:
      break;
  }
  tries.may_have_acted = true;
  DF_TRY_VOID(pause(request, &answer.response, tries, error_of(*answer.failure, name_of(request))));
  return true;
}

// `cause` is the error if there is to be no further try. A store that can't answer says nothing
// about its checkpoints: a restore must not take an older one for that, as it does for kIo.
Status S3Exchange::pause(const S3Request& request, const HttpResponse* answer, Tries& tries,
                         const Error& cause) {
  const ErrorCode code = cause.code() == ErrorCode::kIo ? ErrorCode::kTimeout : cause.code();
  if (tries.count >= kTriesMax || (request.is_cleanup && is_stopped())) {
    return fail(code, fmt::format("{}; tried {} times", cause.message(), tries.count));
  }
  if (!budget_.take()) {
    return fail(code, cause.message() + "; not tried again, because too many requests have failed");
  }
  auto left = std::max(random_pause(tries.count), asked_pause(answer));
  while (left.count() > 0 && !is_stopped()) {
    const auto nap = std::min(left, kNap);
    settings_.time.sleep(nap);
    left -= nap;
  }
  return {};  // the next try finds out that it is stopped
}

bool S3Exchange::change_keys(Tries& tries) {
  if (std::exchange(tries.has_changed_keys, true)) return false;
  settings_.credentials->refuse(tries.credentials);
  return true;
}

// A HEAD's answer names no cause.
bool S3Exchange::is_skewed(const HttpResponse& response, const Tries& tries) {
  const auto date = parse_http_date(response.field("date").value_or(""));
  return date && std::chrono::abs(*date - tries.signed_at) > kSkewMax;
}

bool S3Exchange::change_clock(const HttpResponse& response, Tries& tries) {
  const auto date = parse_http_date(response.field("date").value_or(""));
  if (!date || std::exchange(tries.has_changed_clock, true)) return false;
  const std::lock_guard lock(mutex_);
  clock_offset_ = *date - settings_.time.now();
  return true;
}

bool S3Exchange::change_region(const std::string& region, Tries& tries) {
  if (std::exchange(tries.has_changed_region, true)) return false;
  const std::lock_guard lock(mutex_);
  if (signed_place_.region != region) move_to_region(signed_place_, region);
  return true;
}

}  // namespace deepfreeze
