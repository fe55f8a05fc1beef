/* The losses of distillation on embeddings: one vector a text of each side. See
 * distill_objective.h. */
#include "passes/distill/distill_objective.h"

#include "ir/model.h"

#include <math.h>

/* Of both sides: pair[0] the student's, pair[1] the teacher's. */
static Status find_embeddings(Node *pair[2], Distill *d, Diag *diag) {
    const Objective *o = &d->objective;
    const Node *theirs = graph_output(o->teacher_graph, OUTPUT_EMBEDDING);
    pair[0] = graph_output(o->graph, OUTPUT_EMBEDDING);
    if (pair[0] && theirs) {
        pair[1] = objective_teacher_node(o, theirs);
        return STATUS_OK;
    }
    step_fail(o->ctx, diag, "the %s has no output \"%s\" to compare",
              pair[0] ? "teacher" : "student", OUTPUT_EMBEDDING);
    diag_hint(diag,
              "`model: {path: ..., pooling: mean}` gives an encoder one; folders of "
              "sentence-transformers say theirs in modules.json");
    return STATUS_MODEL;
}

/* x by a matrix of the training graph alone, to `width` numbers; x where it has as many.
 */
static Status project(Node **x, Distill *d, int64_t width, Diag *diag) {
    const Objective *o = &d->objective;
    const int64_t dim[2] = {width, node_width(*x)};
    const Init init = {INIT_NORMAL, 1 / sqrt((double)dim[1])};
    Node *in[2] = {*x, NULL};
    if (dim[0] == dim[1]) return STATUS_OK;
    TRY(storage_create(&in[1], o->graph, "distill.projection", init, 2, dim, diag));
    if (!o->ctx->plan) TRY(graph_init_weights(o->graph, o->ctx->seed, diag));
    tree_put_string(o->ctx->arena, o->ctx->record, "projection",
                    arena_printf(o->ctx->arena, "%lld to %lld", (long long)dim[1],
                                 (long long)dim[0]));
    return node_add(x, o->graph, NULL, &op_linear, in, 2, diag, NULL);
}

Status distill_add_embedding(Distill *d, Diag *diag) {
    Objective *o = &d->objective;
    Node *pair[2], *term = NULL;
    const bool cosine = d->losses.embedding_form == EMBEDDING_cosine;
    if (d->losses.embedding + d->losses.similarity == 0) return STATUS_OK;
    TRY(find_embeddings(pair, d, diag));
    if (d->losses.similarity > 0) {
        TRY(node_add(&term, o->graph, NULL, &op_similarity_mse, pair, 2, diag, NULL));
        TRY(objective_add_part(o, "similarity", term, d->losses.similarity, diag));
    }
    if (d->losses.embedding == 0) return STATUS_OK;
    TRY(project(&pair[0], d, node_width(pair[1]), diag));
    TRY(node_add(&term, o->graph, NULL,
                 cosine ? &op_cosine_distance : &op_mean_squared_error, pair, 2, diag,
                 NULL));
    return objective_add_part(o, "embedding", term, d->losses.embedding, diag);
}
