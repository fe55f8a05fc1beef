/* Layers that get softmax attention back: those whose linear attention lost most when it
 * was matched. See distill_objective.h. */
#include "passes/distill/distill_objective.h"

#include "ir/rewrite.h"

#include <stdlib.h>
#include <string.h>

/* Operands of softmax attention; the others are none that linear attention replaces. */
enum { QUERY, KEY, VALUE, OPERANDS };

/* A matched layer and what its attention lost. */
typedef struct Loss {
    DistillMatch match;
    double value;
} Loss;

/* The larger loss first; of equal ones the later layer. */
static int by_loss(const void *a, const void *b) {
    const Loss *one = a, *two = b;
    if (one->value != two->value) return one->value < two->value ? 1 : -1;
    return two->match.student - one->match.student;
}

/* The matched layers with linear attention; their losses are 0 when planning. */
static Loss *find_losses(const Distill *d, int *count) {
    Arena *arena = d->objective.arena;
    const Tree *told = tree_get(d->objective.ctx->record, "layers");
    Loss *losses = ARENA_ARRAY(arena, Loss, (size_t)d->match_count);
    *count = 0;
    for (int i = 0; i < d->match_count; i++) {
        const DistillMatch m = d->matches[i];
        if (!node_find(d->objective.model->graph, m.student_stack, m.student,
                       ROLE_ATTENTION, &op_linear_attention))
            continue;
        Loss *loss = &losses[(*count)++];
        *loss = (Loss){.match = m};
        const char *place = arena_printf(arena, "%s.%d", m.student_stack, m.student);
        for (const Tree *entry = told ? told->first : NULL; entry; entry = entry->next)
            if (strcmp(tree_get(entry, "place")->string, place) == 0)
                loss->value = tree_get(entry, "attention")->real;
    }
    return losses;
}

/* The student's value that softmax attention is to read as an operand: of the role that
 * it has in the teacher. Fails with STATUS_MODEL where there is none of that width. */
static Status find_operand(Node **out, const Distill *d, const Node *attention,
                           const Loss *loss, int operand, Diag *diag) {
    const Node *theirs = attention->in[operand];
    *out = graph_find(d->objective.model->graph, loss->match.student_stack,
                      loss->match.student, theirs->role);
    if (theirs->role != ROLE_NONE && *out && type_equal(&(*out)->type, &theirs->type))
        return STATUS_OK;
    Status status = step_fail_option(
        d->objective.ctx, "restore_softmax", diag,
        "layer %d of the student has no value \"%s\" of the teacher's width for softmax "
        "attention to read",
        loss->match.student, role_name(theirs->role));
    diag_hint(diag, "softmax comes back before merge_t2r, and where rotary: keep left "
                    "the positions");
    return status;
}

static Status restore_layer(const Distill *d, const Loss *loss, Diag *diag) {
    Graph *graph = d->objective.model->graph;
    const DistillMatch m = loss->match;
    Node *linear = node_find(graph, m.student_stack, m.student, ROLE_ATTENTION,
                             &op_linear_attention);
    const Node *theirs = node_find(d->objective.teacher_graph, m.teacher_stack, m.teacher,
                                   ROLE_ATTENTION, &op_attention);
    Node *in[OPERANDS] = {NULL}, *mask = node_operand(linear, "mask");
    for (int i = QUERY; i < OPERANDS; i++)
        TRY(find_operand(&in[i], d, theirs, loss, i, diag));
    Node *softmax = graph_insert(graph, linear, &op_attention, in, OPERANDS);
    memcpy(softmax->attrs, theirs->attrs, theirs->op->attrs_size);
    if (mask) node_set_operand(graph, softmax, "mask", mask);
    TRY(node_infer(softmax, diag));
    node_place(graph, softmax, linear->stack, linear->layer, linear->role);
    graph_replace_uses(graph, linear, softmax);
    graph_erase(graph, linear);
    return STATUS_OK;
}

/* The places that got softmax attention back, into the step's record. */
static void record_restored(const Distill *d, const Loss *losses, int count) {
    PassContext *ctx = d->objective.ctx;
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < count; i++) {
        Tree *item = tree_new(ctx->arena, TREE_STRING, LOC_NONE);
        item->string = arena_printf(ctx->arena, "%s.%d", losses[i].match.student_stack,
                                    losses[i].match.student);
        tree_append(ctx->arena, list, NULL, LOC_NONE, item);
    }
    tree_append(ctx->arena, ctx->record, "restored", LOC_NONE, list);
}

Status distill_restore(Distill *d, Diag *diag) {
    const int64_t wanted = d->options->restore_softmax;
    PassContext *ctx = d->objective.ctx;
    int count;
    if (wanted == 0) return STATUS_OK;
    Loss *losses = find_losses(d, &count);
    if (wanted >= count)
        return step_fail_option(ctx, "restore_softmax", diag,
                                "expected fewer than the %d matched layers with linear "
                                "attention, found %lld",
                                count, (long long)wanted);
    qsort(losses, (size_t)count, sizeof *losses, by_loss);
    for (int i = 0; i < wanted; i++) TRY(restore_layer(d, &losses[i], diag));
    if (ctx->plan)
        ctx->guessed = true; /* which layers these are */
    else
        record_restored(d, losses, (int)wanted);
    graph_remove_dead(d->objective.model->graph);
    return graph_infer(d->objective.model->graph, diag);
}
