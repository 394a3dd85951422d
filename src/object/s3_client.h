// The requests of S3 that a tier needs. Each is signed, tried again as its error allows, and
// bounded. Any thread; the client outlives its calls.
//
// Errors: kNotFound (404 of a key), kExists (412: the key is taken), kInvalidArgument (401, 403, a
// bucket that is missing: trying again is useless), kTimeout (tried kTriesMax times without
// an outcome), kIo, kCancelled. Messages name operation,
// s3://bucket/key, status, code and the store's request id.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"
#include "object/credentials.h"
#include "object/http.h"
#include "object/object_place.h"

namespace deepfreeze {

inline constexpr int kTriesMax = 8;  // of one request
inline constexpr std::chrono::milliseconds kRetryPauseMin{100};
inline constexpr std::chrono::milliseconds kRetryPauseMax{20'000};
inline constexpr std::size_t kListKeysMax = 1'000'000;

struct ObjectInfo {
  std::uint64_t bytes = 0;
  std::optional<std::uint32_t> crc32c = {};  // of the whole object, if the store keeps it
};

struct ListedObject {
  std::string key;  // below the prefix of the place
  std::uint64_t bytes = 0;
  std::string etag = {};  // differs between versions of one key
};

struct Listing {
  std::vector<ListedObject> objects;
  std::vector<std::string> directories;  // common prefixes, without the slash at their end
};

struct UploadedPart {
  std::string etag;
  std::uint32_t crc32c = 0;
};

struct OpenUpload {
  std::string key;
  std::string upload_id;
  std::string initiated;  // ISO 8601, UTC
};

class S3Exchange;

enum class IfPresent : std::uint8_t { kRefuse, kReplace };

class S3Client {
 public:
  // Tests bring a clock that does not wait.
  struct Time {
    std::function<std::chrono::system_clock::time_point()> now;
    std::function<void(std::chrono::milliseconds)> sleep;
  };
  struct Settings {
    ObjectPlace place;
    std::shared_ptr<HttpTransport> transport;
    std::shared_ptr<CredentialSource> credentials;
    Time time = real_time();
  };
  explicit S3Client(Settings settings);
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;
  ~S3Client();
  [[nodiscard]] static Time real_time();
  // Ends waits and requests: from here on each call is kCancelled, but for abort().
  void stop();
  [[nodiscard]] bool is_stopped() const;
  [[nodiscard]] const ObjectPlace& place() const;
  // The time by the store's clock, if it has complained about this machine's.
  [[nodiscard]] std::chrono::system_clock::time_point now() const;

  // A whole object; `crc32c` is checked by the store. A 412 after an answer that was lost is a
  // success if size and checksum of the object there are these.
  [[nodiscard]] Status put(std::string_view key, std::span<const std::byte> bytes,
                           std::uint32_t crc32c, IfPresent if_present);

  // If an answer was lost, uploads of this key that the lost request may have begun are aborted.
  // Another process's upload may be among them; it then finds that there is none.
  [[nodiscard]] Result<std::string> begin_upload(std::string_view key);
  // Parts are numbered from 1.
  [[nodiscard]] Result<UploadedPart> put_part(std::string_view key, std::string_view upload_id,
                                              int number, std::span<const std::byte> bytes,
                                              std::uint32_t crc32c);
  // `info` is of the whole object, as above.
  [[nodiscard]] Status complete(std::string_view key, std::string_view upload_id,
                                std::span<const UploadedPart> parts, const ObjectInfo& info,
                                IfPresent if_present);
  // One that is not there is no error. Tried even after stop(), then once and briefly.
  [[nodiscard]] Status abort(std::string_view key, std::string_view upload_id);
  [[nodiscard]] Result<std::vector<OpenUpload>> open_uploads(std::string_view prefix);

  [[nodiscard]] Result<ObjectInfo> head(std::string_view key);
  // Reads until `into` is full or the object ends; the count tells which.
  [[nodiscard]] Result<std::size_t> get(std::string_view key, std::uint64_t offset,
                                        std::span<std::byte> into);
  // A whole object of `bytes` bytes, compared with its checksum if the store keeps one. kGone: it
  // has another size now.
  [[nodiscard]] Result<std::string> get_whole(std::string_view key, std::size_t bytes);
  // All keys that begin with `prefix`, page by page. With a delimiter only those of that level.
  [[nodiscard]] Result<Listing> list(std::string_view prefix, bool one_level);
  // A key that is not there is no error.
  [[nodiscard]] Status remove(std::string_view key);

 private:
  void abort_others(std::string_view key, std::string_view kept,
                    std::chrono::system_clock::time_point begun);
  [[nodiscard]] Status look_who_won(std::string_view key, const ObjectInfo& wanted, Error refusal);

  const std::unique_ptr<S3Exchange> exchange_;
};

}  // namespace deepfreeze
