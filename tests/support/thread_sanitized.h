/* THREAD_SANITIZED: whether ThreadSanitizer is built in, which has threads and memory of
 * its own. */
#ifndef COMPRESS_TESTS_SUPPORT_THREAD_SANITIZED_H
#define COMPRESS_TESTS_SUPPORT_THREAD_SANITIZED_H

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif

#endif
