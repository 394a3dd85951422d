#include "manifest/protected_attempts.h"

#include <algorithm>

#include "format/names.h"
#include "manifest/history.h"
#include "manifest/record_file.h"

namespace deepfreeze {

std::vector<AttemptName> protected_attempts(Vfs& vfs, const RunListing& listing) {
  std::vector<const AttemptState*> newest_first;
  for (const AttemptState& attempt : listing.attempts) {
    if (attempt.committed()) newest_first.push_back(&attempt);
  }
  std::ranges::sort(newest_first, [](const AttemptState* a, const AttemptState* b) {
    return older(b->manifest->point, a->manifest->point);
  });
  std::vector<AttemptName> names;
  for (const AttemptState* attempt : newest_first) {
    const auto entries = vfs.list(attempt_dir_name(attempt->name));
    if (!entries) continue;  // it was deleted meanwhile
    const bool has_parity = std::ranges::any_of(
        *entries, [](const DirEntry& entry) { return is_parity_file_name(entry.name); });
    if (has_parity) names.push_back(attempt->name);
    if (has_parity && has_name(*entries, kProtectedFile)) break;
  }
  return names;
}

}  // namespace deepfreeze
