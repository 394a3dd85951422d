// Whether the run's directory has room for one more save: Options::bytes_max. Owned by a
// Checkpointer, and for its caller's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "deepfreeze/options.h"
#include "manifest/run_directory.h"
#include "storage/vfs.h"
#include "tiering/flusher.h"

namespace deepfreeze {

// kInvalidArgument if bytes_max could never count.
[[nodiscard]] Status check_bytes_max(const Options& options);

// The bytes of a save; of one that is not committed yet, with its name.
struct SaveBytes {
  AttemptName name;
  std::uint64_t bytes = 0;
};

class NearRoom {
 public:
  // `flusher` may be null: then there is always room.
  NearRoom(std::optional<std::uint64_t> bytes_max, std::shared_ptr<Flusher> flusher)
      : bytes_max_(bytes_max), flusher_(std::move(flusher)) {}

  // Otherwise there is always room, and await() need not be called.
  [[nodiscard]] bool is_bounded() const { return bytes_max_.has_value() && flusher_ != nullptr; }

  // Waits for room for `bytes` until `deadline`, but not for tiers that all fail. kBusy: there is
  // none; the first time in a row this is logged. Lists the directory while a tier is behind.
  using InFlight = std::function<std::optional<SaveBytes>()>;
  [[nodiscard]] Status await(Vfs& near, std::uint64_t bytes, const InFlight& in_flight,
                             Monotonic::time_point deadline);

 private:
  struct Need {
    Flusher::Space space;
    std::uint64_t bytes = 0;  // with the save
  };
  [[nodiscard]] std::optional<Need> unmet(Vfs& near, std::uint64_t bytes,
                                          const InFlight& in_flight) const;
  [[nodiscard]] Status refuse(const Need& need, Vfs& near);

  const std::optional<std::uint64_t> bytes_max_;
  const std::shared_ptr<Flusher> flusher_;  // also held by the Checkpointer
  bool is_told_ = false;
};

}  // namespace deepfreeze
