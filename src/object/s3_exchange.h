// One request of S3 with its tries: signed, sent, and sent again as its answer allows. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"
#include "object/s3_client.h"
#include "object/s3_errors.h"

namespace deepfreeze {

struct S3Request {
  std::string_view operation;  // "put", for messages
  std::string_view method;
  std::string_view key;  // below the prefix of the place; empty: of the bucket
  std::string query = {};
  std::vector<HttpField> fields = {};
  std::span<const std::byte> body = {};
  std::span<std::byte> into = {};
  bool may_fail_in_body = false;
  bool is_cleanup = false;  // is tried once even after stop()
  std::chrono::milliseconds silence_max{60'000};
  // The fault of an answer of 2xx, which is then asked for again; empty if it is good.
  std::function<std::string(const HttpResponse&)> find_fault = {};
};

struct S3Answer {
  HttpResponse response;
  std::optional<S3Failure> failure = {};  // nothing: success
  bool may_have_acted_before = false;     // an earlier try, of which no answer is known
};

// Tries cost tokens that successes earn, so that an outage of the store does not multiply its load.
class RetryBudget {
 public:
  [[nodiscard]] bool take();
  void give_back(bool was_retried);

 private:
  std::mutex mutex_;
  int tokens_ = kTokensMax;  // guarded by mutex_
  static constexpr int kTokensMax = 500;
  static constexpr int kRetryCost = 5;
};

class S3Exchange {
 public:
  explicit S3Exchange(S3Client::Settings settings);

  // The final answer, or the error of a request that has none: cancelled, or tried too often.
  [[nodiscard]] Result<S3Answer> perform(const S3Request& request);
  // The answer of a success; a failure is an error.
  [[nodiscard]] Result<HttpResponse> ask(const S3Request& request);

  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }
  [[nodiscard]] const ObjectPlace& place() const { return settings_.place; }
  [[nodiscard]] std::chrono::system_clock::time_point now() const;
  // "put s3://bucket/prefix/key".
  [[nodiscard]] std::string name_of(const S3Request& request) const;

 private:
  struct Tries;  // of one request

  [[nodiscard]] Result<HttpResponse> send(const S3Request& request, Tries& tries);
  // Whether the request is to be sent again; the pause is over then.
  [[nodiscard]] Result<bool> goes_on(const S3Request& request, const S3Answer& answer,
                                     Tries& tries);
  [[nodiscard]] Status pause(const S3Request& request, const HttpResponse* answer, Tries& tries,
                             const Error& cause);
  [[nodiscard]] bool change_keys(Tries& tries);
  [[nodiscard]] static bool is_skewed(const HttpResponse& response, const Tries& tries);
  [[nodiscard]] bool change_clock(const HttpResponse& response, Tries& tries);
  [[nodiscard]] bool change_region(const std::string& region, Tries& tries);

  const S3Client::Settings settings_;
  std::atomic<bool> stopped_{false};  // relaxed: it only ends waits
  RetryBudget budget_;
  mutable std::mutex mutex_;
  ObjectPlace signed_place_;  // guarded by mutex_: the region may be another one than the settings'
  std::chrono::system_clock::duration clock_offset_{0};  // guarded by mutex_: the store's - ours
};

}  // namespace deepfreeze
