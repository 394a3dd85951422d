// Whether a sanitizer watches this build. Tests that try all combinations then try a part of them:
// those of a release build try all, and a sanitizer looks at the code that runs, not at its
// results.
#pragma once

namespace deepfreeze {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace deepfreeze
