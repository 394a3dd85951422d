// The objects of a place at one moment, as a Vfs that is only read. A pass over a run reads the
// record of each checkpoint; records never change under their key, so those that were read before
// are kept.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "deepfreeze/result.h"
#include "object/s3_client.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::uint64_t kSmallObjectBytesMax = 1U << 20U;  // of one that is kept
inline constexpr std::size_t kSmallObjectsBytesMax = 32U << 20U;  // of all that are kept

// Texts of small objects, each good for one version of its key. Any thread.
class SmallObjects {
 public:
  [[nodiscard]] std::optional<std::string> find(const std::string& key, const std::string& etag);
  // Forgets all others if there are too many.
  void keep(const std::string& key, const std::string& etag, const std::string& text);

 private:
  struct Kept {
    std::string etag;
    std::string text;
  };

  std::mutex mutex_;
  std::map<std::string, Kept> kept_;  // by key; guarded by mutex_
  std::size_t bytes_ = 0;             // guarded by mutex_
};

// Lists all keys of the client's place. Larger files are opened in `view`. All outlive the look.
[[nodiscard]] Result<std::unique_ptr<Vfs>> look_at(S3Client& client, SmallObjects& small,
                                                   Vfs& view);

}  // namespace deepfreeze
