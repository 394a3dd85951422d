// Errors as values: nothing in the core throws. Value types, any thread.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace deepfreeze {

// The kind of failure, as far as a caller would act on it.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // the caller's input is wrong
  kNotFound,         // the run, step, key or file does not exist
  kExists,           // a name that must be new is taken
  kCorrupt,          // stored bytes do not verify
  kIncomplete,       // an attempt lacks a part
  kGone,             // a checkpoint was deleted while it was read: list anew
  kNoSpace,          // the disk or quota is full
  kMismatch,         // stored and wanted shapes, dtypes or keys differ
  kEncode,           // a value of the state can't be stored
  kFenced,           // a newer generation has taken the run over
  kTornCapture,      // a tensor changed while it was captured
  kIo,               // any other failure of the file system
  kUnsupported,      // written by a newer version, or not available here
  kBusy,             // another save is in flight
  kTimeout,          // a deadline passed
  kCancelled,        // given up on request
  kInternal,         // our own mistake
};

// The stable name of a code, e.g. "corrupt".
[[nodiscard]] std::string_view to_string(ErrorCode code);

// One failure: a code and a sentence that names operation, object, place and cause.
class [[nodiscard]] Error {
 public:
  // Long words of the message, such as a key of megabytes, are cut.
  Error(ErrorCode code, std::string message, int os_errno = 0);

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] int os_errno() const { return os_errno_; }  // 0 if no system call failed
  [[nodiscard]] const std::string& message() const { return message_; }

  // Prefixes the message with the caller's context: "restore step 7: read block 3: ...".
  [[nodiscard]] Error within(std::string_view context) const {
    return {code_, std::string(context) + ": " + message_, os_errno_};
  }

 private:
  ErrorCode code_;
  int os_errno_;
  std::string message_;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

}  // namespace deepfreeze
