/* Linears: which matrices of a model a step applies to, as written in recipes. */
#ifndef COMPRESS_PASSES_LINEARS_H
#define COMPRESS_PASSES_LINEARS_H

#include "ir/field.h"
#include "passes/fault.h"
#include "passes/nodes.h"

/* The options, a member of a pass's options. Empty = not given; all given ones must
 * match.
 */
typedef struct LinearChoice {
    StringList roles; /* names of roles */
    StringList only;  /* patterns of names of weights */
    StringList skip;  /* the same */
    IntList layers;
    const char *stack; /* NULL = all */
} LinearChoice;

/* Their rows, for struct S with LinearChoice `member`. */
#define LINEARS_LIST(S, option, field_kind, type, member, ...)                           \
    {                                                                                    \
        .name = option, .kind = field_kind, .offset = FIELD_AT(S, member, type),         \
        .help = __VA_ARGS__                                                              \
    }
#define F_LINEARS(S, member)                                                             \
    LINEARS_LIST(S, "roles", FIELD_STRINGS, StringList, member.roles,                    \
                 "only projections of these roles: q, ffn_in, ...; without roles and "   \
                 "only: all in layers, early exits left out"),                           \
        LINEARS_LIST(S, "only", FIELD_STRINGS, StringList, member.only,                  \
                     "only weights of these names, * is any text"),                      \
        LINEARS_LIST(S, "skip", FIELD_STRINGS, StringList, member.skip,                  \
                     "no weights of these names"),                                       \
        {.name = "layers",                                                               \
         .kind = FIELD_INTS,                                                             \
         .offset = FIELD_AT(S, member.layers, IntList),                                  \
         .min = 0,                                                                       \
         .max = 999999,                                                                  \
         .help = "only these layers, from 0"},                                           \
    {                                                                                    \
        .name = "stack", .kind = FIELD_STRING,                                           \
        .offset = FIELD_AT(S, member.stack, const char *), .nullable = true,             \
        .help = "only this stack of layers; main: the decoder if there is one, else "    \
                "the encoder"                                                            \
    }

/* Fails with STATUS_RECIPE for an unknown role. */
Status linears_check(const LinearChoice *choice, const StepSource *source, Diag *diag);

/* Fails with STATUS_MODEL if a model lacks the chosen stack or layers.
 */
Status linears_check_places(const LinearChoice *choice, PassContext *ctx,
                            const Graph *graph, Diag *diag);

/* Whether a node is a chosen projection with a stored matrix as its weight: without
 * roles and names one in a layer, or in early exits if their stack is chosen. The first
 * of two factors never is: the second has the role. */
bool linears_choose(const LinearChoice *choice, const Graph *graph, const Node *node);

/* Whether the weight of a projection is stored [inputs, outputs]. */
static inline bool linear_is_turned(const Node *linear) {
    return ((const LinearAttrs *)linear->attrs)->transposed;
}

/* If a projection is the second of two factors (passes/factoring/), the first one: a
 * projection without bias of the role `factor` that nothing else reads; else NULL. */
Node *linear_first_factor(const Graph *graph, const Node *linear);

#endif
