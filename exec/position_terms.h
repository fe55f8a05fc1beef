/* What is added to the scores of attention in addition to products of queries and
 * keys. */
#ifndef COMPRESS_EXEC_POSITION_TERMS_H
#define COMPRESS_EXEC_POSITION_TERMS_H

#include "exec/ops.h"
#include "ir/graph.h"

/* Whether terms that depend on the places of queries and keys are added: a bias, or
 * relative positions. */
static inline bool attention_has_position_terms(const Node *attention) {
    static const char *const TERMS[] = {"bias", "rel_bias", "rel_key"};
    for (size_t i = 0; i < sizeof TERMS / sizeof *TERMS; i++)
        if (node_operand(attention, TERMS[i])) return true;
    return false;
}

#endif
