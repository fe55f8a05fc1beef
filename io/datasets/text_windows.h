/* Text windows: a text's tokens in overlapping windows, each token predicted once, as
 * used to measure the perplexity of texts longer than a model's context. */
#ifndef COMPRESS_IO_DATASETS_TEXT_WINDOWS_H
#define COMPRESS_IO_DATASETS_TEXT_WINDOWS_H

#include "ir/batches.h"

/* Windows over tokens[0 .. count). Window i is tokens i stride .. i stride + length - 1,
 * or to the end of the text, where the windows end. It predicts those of its tokens that
 * no earlier window has, except its own first one, which has nothing before it. So with
 * stride < length, every token except the text's first is predicted once, in later
 * windows with at least length - stride tokens before it; with stride = length, the
 * first token of every window is left out.
 *
 * Columns are input_ids and attention_mask i32[T], a window without its last token, and
 * labels i32[T], the token after each or INDEX_SKIP. `name` and `tokens` are borrowed.
 * Expects count >= 2 and 1 <= stride <= length, length >= 2. */
Batches *text_windows_create(const char *name, const int32_t *tokens, int64_t count,
                             int64_t length, int64_t stride);

#endif
