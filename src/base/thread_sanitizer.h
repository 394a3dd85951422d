// Whether ThreadSanitizer watches this build: code that races on purpose must tell it so.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define DF_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DF_THREAD_SANITIZER 1
#endif
#endif
#ifndef DF_THREAD_SANITIZER
#define DF_THREAD_SANITIZER 0
#endif
