// A store that speaks S3, in memory, as the transport of a client: PUT, also conditional, uploads
// in parts whose checksums it compares, GET by ranges, HEAD, listings by pages, DELETE. Faults are
// armed by the number of the request. Any thread; it takes one request at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "object/http.h"
#include "object/s3_client.h"

namespace deepfreeze {

enum class S3Fault : std::uint8_t {
  kInternalError,  // 500, and nothing was done
  kSlowDown,       // 503 with Retry-After
  kErrorInBody,    // a Complete is answered by 200, and by an error in the body
  kLostBefore,     // the connection goes before the store acts
  kLostAfter,      // the store acts, and its answer is lost
  kConflict,       // 409, to a conditional request
  kTaken,          // 412, to a conditional request: another client has put the same bytes
  kTimeout,        // no answer; the store acts after the next request
  kExpiredToken,
  kSkewedClock,    // by an hour
  kFlippedAnswer,  // a bit of the body that a GET gets
  kFlippedBody,    // a bit of a request's body
};
inline constexpr int kS3Faults = static_cast<int>(S3Fault::kFlippedBody) + 1;

// A clock that moves when somebody sleeps.
class FakeTime {
 public:
  [[nodiscard]] S3Client::Time time();
  [[nodiscard]] std::chrono::system_clock::time_point now() const;
  void advance(std::chrono::milliseconds by) { millis_ += by.count(); }
  [[nodiscard]] std::chrono::milliseconds slept() const {
    return std::chrono::milliseconds(slept_);
  }

 private:
  std::atomic<std::int64_t> millis_{1'795'824'000'000};  // 2026-11-27
  std::atomic<std::int64_t> slept_{0};
};

// The same keys each time; counts how often they were refused.
class FakeKeys : public CredentialSource {
 public:
  [[nodiscard]] Result<Credentials> get() override;
  void refuse(const Credentials& /*refused*/) override { ++refusals; }
  std::atomic<int> refusals{0};
};

class FakeS3 final : public HttpTransport {
 public:
  explicit FakeS3(const FakeTime& clock) : clock_(clock) {}

  // A place in this store, and a client of it with keys of its own.
  [[nodiscard]] static ObjectPlace place();
  [[nodiscard]] static S3Client::Settings settings(std::shared_ptr<HttpTransport> store,
                                                   FakeTime& time);

  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override;
  // Without faults, and not counted.
  [[nodiscard]] Result<HttpResponse> send_unharmed(const HttpRequest& request);

  void fail_at(std::size_t request, S3Fault fault) { faults_[request] = fault; }
  // Asked before the store; an answer that it gives is the client's.
  using Hook = std::function<std::optional<Result<HttpResponse>>(const HttpRequest& request)>;
  void set_hook(Hook hook) { hook_ = std::move(hook); }
  void set_page_size(std::size_t keys) { page_size_ = keys; }
  void set_region(std::string region) { region_ = std::move(region); }
  void forget_checksums() { keeps_checksums_ = false; }
  void ignore_conditions() { takes_conditions_ = false; }

  // The tester's own hands: keys with the prefix of place(), of which "" is the whole.
  [[nodiscard]] std::optional<std::string> contents(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> keys() const;
  void plant(std::string_view key, std::string bytes);
  [[nodiscard]] bool flip_bit(std::string_view key, std::uint64_t bit);
  // As another client would; returns its id.
  std::string plant_upload(std::string_view key);
  [[nodiscard]] std::size_t open_uploads() const;
  [[nodiscard]] std::size_t request_count() const;
  [[nodiscard]] std::vector<std::string> log() const;  // "PUT runs/a/key?partNumber"

  static HttpResponse error(int status, std::string_view code, std::string_view more = "");

 private:
  struct Object {
    std::string bytes;
    std::uint32_t crc = 0;
  };
  struct OpenParts {
    std::string key;
    std::chrono::system_clock::time_point initiated;
    std::map<int, Object> parts;
  };
  struct Asked;  // a request, taken apart

  // mutex_ is held in all of these.
  [[nodiscard]] Result<HttpResponse> answer(const HttpRequest& request, Asked asked,
                                            std::optional<S3Fault> fault);
  [[nodiscard]] Result<HttpResponse> act_with(S3Fault fault, Asked asked);
  [[nodiscard]] HttpResponse act(const Asked& asked);
  [[nodiscard]] HttpResponse put(const Asked& asked);
  [[nodiscard]] HttpResponse put_part(const Asked& asked);
  [[nodiscard]] HttpResponse begin(const Asked& asked);
  [[nodiscard]] HttpResponse complete(const Asked& asked, bool keeps_open);
  [[nodiscard]] HttpResponse get(const Asked& asked);
  [[nodiscard]] HttpResponse head(const Asked& asked);
  [[nodiscard]] HttpResponse remove(const Asked& asked);
  [[nodiscard]] HttpResponse list(const Asked& asked);
  [[nodiscard]] HttpResponse list_uploads(const Asked& asked);
  [[nodiscard]] bool is_refused(const Asked& asked) const;

  const FakeTime& clock_;
  Hook hook_;
  std::map<std::size_t, S3Fault> faults_;
  std::size_t page_size_ = 1000;
  std::string region_;
  bool keeps_checksums_ = true;
  bool takes_conditions_ = true;

  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, Object> objects_;
  std::map<std::string, OpenParts> uploads_;
  std::shared_ptr<Asked> late_;  // timed out; a shared_ptr because the type is not complete here
  std::vector<std::string> log_;
  std::uint64_t uploads_begun_ = 0;
};

// The same store for a tester's client, which no fault meets.
class UnharmedS3 final : public HttpTransport {
 public:
  explicit UnharmedS3(std::shared_ptr<FakeS3> store) : store_(std::move(store)) {}
  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override {
    return store_->send_unharmed(request);
  }

 private:
  const std::shared_ptr<FakeS3> store_;  // others: the clients that are under test
};

}  // namespace deepfreeze
