// Which names a Vfs accepts. The kernel's checks come on top of these.
#pragma once

#include <cstddef>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kNameComponentBytesMax = 128;

// Components [A-Za-z0-9._-]{1,128} other than "." and "..", joined by single slashes.
// kInvalidArgument otherwise; `operation` is for the message.
[[nodiscard]] Status check_vfs_name(std::string_view operation, std::string_view name);

// "step/rank.part" -> {"step", "rank.part"}; "rank.part" -> {"", "rank.part"}.
struct SplitName {
  std::string_view parent;
  std::string_view leaf;
};
[[nodiscard]] SplitName split_vfs_name(std::string_view name);

}  // namespace deepfreeze
