// The meaning of an answer of S3 that is no success. Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "object/http.h"

namespace deepfreeze {

struct S3Failure {
  int status = 0;
  std::string code = {};  // "SlowDown"; empty if the answer has no body, as those to HEAD
  std::string message = {};
  std::string request_id = {};
  std::string region = {};  // that the bucket is in, if the answer says so
};

// Nothing if the answer is a success. `may_fail_in_body`: an answer of 200 may hold an error.
[[nodiscard]] std::optional<S3Failure> find_failure(const HttpResponse& response,
                                                    bool may_fail_in_body);

enum class Remedy : std::uint8_t {
  kNone,    // the answer is final
  kWait,    // the same again, after a pause
  kKeys,    // other credentials
  kClock,   // the store's time
  kRegion,  // S3Failure::region
};
[[nodiscard]] Remedy remedy_for(const S3Failure& failure);

// `subject` names operation and place. For 401, 403 and a missing bucket the message names a mend.
[[nodiscard]] Error error_of(const S3Failure& failure, std::string_view subject);

}  // namespace deepfreeze
