// The files ~/.aws/credentials and ~/.aws/config. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/secret.h"

namespace deepfreeze {

// Names in lower case.
using ProfileSettings = std::map<std::string, Secret, std::less<>>;

// The settings of one profile; none if the file has no such profile. In `kCredentials` its section
// is [name], in `kConfig` [profile name] or [default]. Of a name that is there twice the last
// counts. A line that is indented more than the setting before it belongs to that one and is left
// out, as are lines that are no settings.
enum class ProfileFile : std::uint8_t { kCredentials, kConfig };
[[nodiscard]] ProfileSettings settings_of_profile(std::string_view text, ProfileFile file,
                                                  std::string_view profile);

}  // namespace deepfreeze
