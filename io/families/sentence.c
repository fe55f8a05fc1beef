/* Sentence embeddings: see sentence.h. */
#include "io/families/sentence.h"

#include "io/families/build.h"
#include "ir/rewrite.h"

#include <string.h>

/* The mask of the texts' tokens; images have none, and decoders did not ask for theirs.
 */
static Node *find_mask(Builder *b, const Node *states) {
    const int64_t dim[] = {states->type.dim[0], states->type.dim[1]};
    if (dim[1] != DIM_T) return NULL;
    Node *mask = graph_find_input(b->model->graph, INPUT_MASK);
    return mask ? mask : build_input(b, INPUT_MASK, DTYPE_I32, 2, dim);
}

static Node *pool_states(Builder *b, const char *pooling, Node *states) {
    b->stack = STACK_HEAD;
    Node *in[4] = {states};
    if (strcmp(pooling, "first") == 0)
        return build_op(b, "select_token", ROLE_POOL, in, "index=0");
    in[1] = find_mask(b, states);
    const bool mean = strcmp(pooling, "mean") == 0;
    return build_op(b, mean ? "mean_tokens" : "last_token", ROLE_POOL, in, NULL);
}

static Status fail_pooling(const Builder *b, Diag *diag, const char *expected,
                           const char *found) {
    return diag_fail(diag, STATUS_MODEL, build_config_loc(b, SENTENCE_POOLING),
                     SENTENCE_POOLING, "expected %s, found %.60s", expected, found);
}

/* Takes the embedding from a model that was read with one. */
static Status drop_embedding(const Builder *b) {
    Graph *graph = b->model->graph;
    if (!graph_output(graph, OUTPUT_EMBEDDING)) return STATUS_OK;
    if (!graph_output(graph, OUTPUT_STATES))
        return fail_pooling(b, b->diag, "no key: the model has nothing but its embedding",
                            "none");
    graph_remove_output(graph, OUTPUT_EMBEDDING);
    graph_remove_dead(graph);
    return STATUS_OK;
}

Status sentence_build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    Graph *graph = model->graph;
    const char *pooling = build_config_string(&b, SENTENCE_POOLING, "none");
    const bool normalize = build_config_bool(&b, SENTENCE_NORMALIZE, false);
    TRY(b.status);
    if (strcmp(pooling, "none") == 0) {
        if (normalize)
            return fail_pooling(&b, diag, "mean, first or last beside normalize: true",
                                "none");
        return build_config_value(&b, SENTENCE_POOLING) ? drop_embedding(&b) : STATUS_OK;
    }
    if (strcmp(pooling, "mean") != 0 && strcmp(pooling, "first") != 0 &&
        strcmp(pooling, "last") != 0)
        return fail_pooling(&b, diag, "mean, first, last or none", pooling);
    Node *states = graph_output(graph, OUTPUT_STATES);
    if (!states || states->type.rank != 3 || graph_find_input(graph, INPUT_TARGET_IDS))
        return fail_pooling(&b, diag, "none: the model has no states of tokens to pool",
                            pooling);
    Node *x = pool_states(&b, pooling, states);
    if (normalize) x = build_op(&b, "normalize", ROLE_NONE, (Node *[4]){x}, NULL);
    build_output(&b, OUTPUT_EMBEDDING, x);
    TRY(b.status);
    graph_remove_output(graph, OUTPUT_LOGITS);
    graph_remove_dead(graph);
    graph->task = TASK_EMBED;
    return STATUS_OK;
}
