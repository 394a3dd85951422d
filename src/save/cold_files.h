// The cold files of a rank: the bytes that its last saves had in common, and the attempts in which
// they lie. Two copies, in turn linked by the saves that follow, so that one bad block does not
// cost every checkpoint. Used by the engine's worker, for one save at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "format/names.h"
#include "format/point.h"
#include "format/shard_header.h"
#include "save/save_plan.h"

namespace deepfreeze {

inline constexpr std::size_t kColdCopies = 2;
// A copy is written anew after so many saves or so much time: disks lose bits of old files.
struct ColdLimits {
  std::uint64_t saves_max = 100;
  std::chrono::hours age_max{24};
};
// Attempts that are tried as the source of a link; others may have been deleted.
inline constexpr std::size_t kColdSourcesMax = 8;

class ColdFiles {
 public:
  explicit ColdFiles(ColdLimits limits = {}) : limits_(limits) {}

  // Which copy a save has, and whether it has to write it.
  struct Turn {
    std::size_t copy = 0;
    bool must_write = true;
  };

  // Whether these files are the cold ones of that layout.
  [[nodiscard]] bool are_of(const std::shared_ptr<const TablePlan>& table) const {
    return table_ != nullptr && table_ == table;
  }
  // Other bytes from here on: those of a save, whose cold files have these headers.
  void begin(std::shared_ptr<const TablePlan> table, Origin origin,
             std::vector<EncodedHeader> headers);
  void forget();

  [[nodiscard]] const Origin& origin() const { return origin_; }
  [[nodiscard]] const std::vector<EncodedHeader>& headers() const { return headers_; }

  [[nodiscard]] Turn next_turn() const;
  [[nodiscard]] Turn other_turn(const Turn& turn) const;
  // The attempts that have a copy, newest first.
  [[nodiscard]] const std::deque<AttemptName>& sources(std::size_t copy) const {
    return copies_[copy].sources;
  }
  // A committed attempt has the copy now; `wrote`: as a new file.
  void note(const Turn& turn, const AttemptName& attempt, bool wrote);

  [[nodiscard]] bool warn_once() { return !std::exchange(has_warned_, true); }

 private:
  struct Copy {
    std::deque<AttemptName> sources;
    std::uint64_t saves = 0;  // since it was written
    Monotonic::time_point written;
  };
  [[nodiscard]] bool is_due(const Copy& copy) const;

  const ColdLimits limits_;
  std::shared_ptr<const TablePlan> table_;  // null: there are none
  Origin origin_;
  std::vector<EncodedHeader> headers_;  // by cold file
  std::array<Copy, kColdCopies> copies_;
  std::size_t turn_ = 0;
  bool has_warned_ = false;
};

}  // namespace deepfreeze
