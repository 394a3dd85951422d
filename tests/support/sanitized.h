// Whether a sanitizer watches this build. Tests that try all combinations then try a part of them:
// those of a release build try all, and a sanitizer looks at the code that runs, not at its
// results.
#pragma once

namespace deepfreeze {

#if defined(__has_feature)
inline constexpr bool kAddressSanitized = __has_feature(address_sanitizer);
inline constexpr bool kThreadSanitized = __has_feature(thread_sanitizer);
#else
inline constexpr bool kAddressSanitized = false;
inline constexpr bool kThreadSanitized = false;
#endif
inline constexpr bool kSanitized = kAddressSanitized || kThreadSanitized;

}  // namespace deepfreeze
