// A store in memory, and a client of it whose pauses take no time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "codec/crc32c.h"
#include "object/s3_client.h"
#include "support/code_of.h"
#include "support/fake_s3.h"

namespace deepfreeze {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::uint32_t crc_of_text(std::string_view text) { return crc32c(bytes_of(text)); }

inline std::string random_text(std::size_t size, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// "" for a success.
template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "" : result.error().message();
}

class FakeStoreTest : public testing::Test {
 protected:
  Status put(std::string_view key, std::string_view text,
             IfPresent if_present = IfPresent::kRefuse) {
    return client_->put(key, bytes_of(text), crc_of_text(text), if_present);
  }
  // The answer of the next request that the store would get.
  void answer_next(HttpResponse answer) {
    store_->set_hook([answer, is_done = false](const HttpRequest& /*request*/) mutable
                         -> std::optional<Result<HttpResponse>> {
      if (std::exchange(is_done, true)) return std::nullopt;
      return answer;
    });
  }
  void answer_always(const HttpResponse& answer) {
    store_->set_hook(
        [answer](const HttpRequest& /*request*/) { return Result<HttpResponse>(answer); });
  }
  void fail_next(S3Fault fault) { store_->fail_at(store_->request_count(), fault); }

  FakeTime time_;
  std::shared_ptr<FakeS3> store_ = std::make_shared<FakeS3>(time_);
  S3Client::Settings settings_ = FakeS3::settings(store_, time_);
  std::shared_ptr<S3Client> client_ = std::make_shared<S3Client>(settings_);
};

}  // namespace deepfreeze
