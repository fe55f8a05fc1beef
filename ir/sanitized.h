/* SANITIZED: whether AddressSanitizer is built in, which reserves terabytes of address
 * space, traces its own process and makes its own system calls. */
#ifndef COMPRESS_IR_SANITIZED_H
#define COMPRESS_IR_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
