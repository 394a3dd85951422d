#include "save/restored_points.h"

#include <map>
#include <mutex>

namespace deepfreeze {
namespace {

struct Restored {
  std::mutex mutex;
  std::map<std::string, Point> by_run;
};

Restored& restored() {
  static Restored all;
  return all;
}

}  // namespace

void note_restored(const std::string& run_id, const Point& point) {
  const std::lock_guard lock(restored().mutex);
  restored().by_run.insert_or_assign(run_id, point);
}

std::optional<Point> restored_point(const std::string& run_id) {
  const std::lock_guard lock(restored().mutex);
  const auto found = restored().by_run.find(run_id);
  if (found == restored().by_run.end()) return std::nullopt;
  return found->second;
}

void forget_restored(const std::string& run_id) {
  const std::lock_guard lock(restored().mutex);
  restored().by_run.erase(run_id);
}

}  // namespace deepfreeze
