/* A call of attention_lstm: its operands and sizes, and what the forward kernel keeps for
 * the backward one.
 *
 * Shapes: samples N, target tokens T, source tokens S, widths R of the memory, M of the
 * cell, K of what the gates see in addition to the context, L of the alignment. Without
 * alignment the context is one mean for all tokens. */
#ifndef COMPRESS_EXEC_OPS_ATTENTION_LSTM_H
#define COMPRESS_EXEC_OPS_ATTENTION_LSTM_H

#include "exec/ops/additive_attention.h"
#include "exec/ops/kernel.h"
#include "exec/ops/lstm_cell.h"

/* Operands by position. */
enum {
    ALSTM_MEMORY,
    ALSTM_WEIGHT_IN,
    ALSTM_WEIGHT_CONTEXT,
    ALSTM_BIAS,
    ALSTM_X,
    ALSTM_STEPS,
    ALSTM_MASK,
    ALSTM_ALIGN_MEMORY,
    ALSTM_ALIGN_STATE,
    ALSTM_ALIGN_SCORE,
    ALSTM_EMBEDDING,
    ALSTM_HEAD,
    ALSTM_OPERANDS
};

/* One call's sizes, operands (NULL when absent) and what is kept for the backward
 * pass. */
typedef struct AttentionLstm {
    int64_t N, T, S, R, M, K, L;
    int64_t wide; /* 4 M */
    bool aligned; /* additive attention; else the mean */
    const REAL *memory, *weight_in, *weight_context, *x;
    const REAL *align_memory, *align_state, *align_score;
    const REAL *embedding, *head;
    const int32_t *mask;
    const REAL *y; /* the result */

    REAL *gates;   /* [N, T, 4 M], after their functions */
    REAL *cell;    /* [N, T, M] */
    REAL *context; /* [N, T, R]; [N, R] when it is the mean */
    REAL *weight;  /* [N, T, S]: share of each source token; with alignment */
    REAL *key;     /* [N, S, L]: align_memory times the memory */
    REAL *query;   /* [N, T, L]: align_state times the cell before */

    /* the cell's own predicted words, read in training instead of some rows of x */
    int64_t V;     /* words; 0 without embedding and head */
    bool feeding;  /* whether this call does */
    REAL *seen;    /* [N, T, K]: what the gates saw in place of x */
    int32_t *word; /* [N, T]: the row of the embedding, -1 = that of x */
    size_t aux_bytes;
} AttentionLstm;

/* Fills `a` from a call. Without buffers (planning) only sizes are valid. */
void REAL_FN(attention_lstm_open)(AttentionLstm *a, const Call *call);

/* Whether a source token of sample n counts (`alstm_keeps`), and how many do. */
static inline bool alstm_keeps(const AttentionLstm *a, int64_t n, int64_t s) {
    return !a->mask || a->mask[n * a->S + s] != 0;
}
static inline int64_t alstm_count(const AttentionLstm *a, int64_t n) {
    int64_t count = 0;
    for (int64_t s = 0; s < a->S; s++) count += alstm_keeps(a, n, s);
    return count;
}

/* Bytes of scratch that the backward takes, and the kernel itself. */
size_t REAL_FN(attention_lstm_scratch)(const AttentionLstm *a);
void REAL_FN(attention_lstm_backward)(const Call *call);

#endif
