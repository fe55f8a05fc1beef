/* Encoder-decoder models with reference tensors: their sizes, and feeding both sequences.
 */
#ifndef COMPRESS_TESTS_EXEC_SEQ2SEQ_FIXTURE_H
#define COMPRESS_TESTS_EXEC_SEQ2SEQ_FIXTURE_H

#include "exec/ops.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <string.h>

#define ROOT "tests/data/reference/"

enum { RESULTS_MAX = 32 };

/* The sizes of a reference's inputs. */
static inline void seq2seq_sizes(int64_t sizes[DIM_SYMBOLS],
                                 const Checkpoint *reference) {
    const Tensor *source = checkpoint_find(reference, "input_ids");
    const Tensor *target = checkpoint_find(reference, "decoder_input_ids");
    assert_non_null(source);
    assert_non_null(target);
    memset(sizes, 0, DIM_SYMBOLS * sizeof *sizes);
    sizes[DIM_INDEX(DIM_N)] = source->dim[0];
    sizes[DIM_INDEX(DIM_S)] = source->dim[1];
    sizes[DIM_INDEX(DIM_T)] = target->dim[1];
}

/* Feeds both sequences, and the labels where there is a loss; no target token is masked.
 */
static inline void seq2seq_feed(const Runner *r, const Checkpoint *reference,
                                const int64_t sizes[DIM_SYMBOLS]) {
    static const char *const NAMES[] = {"input_ids", "attention_mask",
                                        "decoder_input_ids", "labels"};
    for (int i = 0; i < 4; i++)
        reference_feed(r->workspace, reference, NAMES[i], NAMES[i]);
    int32_t *mask = workspace_input(r->workspace, "decoder_attention_mask");
    const int64_t count = sizes[DIM_INDEX(DIM_N)] * sizes[DIM_INDEX(DIM_T)];
    for (int64_t i = 0; mask && i < count; i++) mask[i] = 1;
}

#endif
