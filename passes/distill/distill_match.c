/* What of the student is compared with what of the teacher: layers, tokens, exits. See
 * distill_objective.h. */
#include "passes/distill/distill_objective.h"
#include "passes/layers.h"
#include "passes/patches.h"

#include <stdlib.h>
#include <string.h>

/* ---- stacks ---- */

/* The stack that holds the model's layers: the main one, if they are a transformer's,
 * else the first with queries. */
static const char *find_stack(const Graph *graph) {
    const char *stack = graph_main_stack(graph);
    if (graph_find(graph, stack, -1, ROLE_ATTENTION) ||
        graph_find(graph, stack, -1, ROLE_FFN_OUT))
        return stack;
    const Node *query = graph_find(graph, NULL, -1, ROLE_Q);
    return query && query->layer >= 0 ? query->stack : NULL;
}

/* ---- pairs of places ---- */

/* Reads "encoder.3" from `text` of `length` bytes. */
static bool read_place(const char **stack, int *layer, Arena *arena, const char *text,
                       size_t length) {
    char *copy = arena_strndup(arena, text, length), *end = NULL;
    char *dot = strrchr(copy, '.');
    if (!dot || dot == copy || dot[1] < '0' || dot[1] > '9') return false;
    const long number = strtol(dot + 1, &end, 10);
    if (*end || number > 100000) return false;
    *dot = 0;
    *stack = copy;
    *layer = (int)number;
    return true;
}

bool distill_read_pair(DistillMatch *pair, Arena *arena, const char *text) {
    const char *equals = strchr(text, '=');
    return equals &&
           read_place(&pair->student_stack, &pair->student, arena, text,
                      (size_t)(equals - text)) &&
           read_place(&pair->teacher_stack, &pair->teacher, arena, equals + 1,
                      strlen(equals + 1));
}

static Status check_layer(Distill *d, bool teacher, const char *stack, int64_t layer,
                          Diag *diag) {
    const Objective *o = &d->objective;
    const int count = graph_layer_count(teacher ? o->teacher_graph : o->graph, stack);
    const char *side = teacher ? "teacher" : "student";
    if (layer >= 0 && layer < count) return STATUS_OK;
    if (count == 0)
        return step_fail(o->ctx, diag, "the %s has no layers in stack \"%s\"", side,
                         stack);
    return step_fail_option(
        o->ctx, teacher ? "teacher_layers|pairs" : "student_layers|pairs", diag,
        "expected %s layers below %d, found %lld", side, count, (long long)layer);
}

static Status match_pairs(Distill *d, Diag *diag) {
    const StringList *pairs = &d->options->pairs;
    Arena *arena = d->objective.arena;
    d->matches = ARENA_ARRAY(arena, DistillMatch, (size_t)pairs->count);
    for (int i = 0; i < pairs->count; i++) {
        DistillMatch match = {0};
        if (!distill_read_pair(&match, arena, pairs->items[i])) continue;
        TRY(check_layer(d, false, match.student_stack, match.student, diag));
        TRY(check_layer(d, true, match.teacher_stack, match.teacher, diag));
        d->matches[d->match_count++] = match;
    }
    return STATUS_OK;
}

/* ---- rules ---- */

/* Depths and lineages of both stacks. */
typedef struct Depths {
    int ours, theirs;
    IntList our_origin,
        their_origin; /* layers' numbers in the models as they were read */
} Depths;

static Status read_depths(Depths *depths, Distill *d, const char *ours,
                          const char *theirs, Diag *diag) {
    Objective *o = &d->objective;
    depths->ours = graph_layer_count(o->model->graph, ours);
    depths->theirs = graph_layer_count(o->teacher_graph, theirs);
    TRY(layers_lineage(&depths->our_origin, o->arena, o->ctx, o->model, ours,
                       depths->ours, diag));
    return layers_lineage(&depths->their_origin, o->arena, o->ctx, d->teacher, theirs,
                          depths->theirs, diag);
}

/* Place of `number` in a list, -1 when it is not there. */
static int find_number(IntList list, int64_t number) {
    for (int i = 0; i < list.count; i++)
        if (list.items[i] == number) return i;
    return -1;
}

/* The teacher's layer that stems from the same one as student layer `s`. */
static Status match_origin(int64_t *out, Distill *d, const Depths *depths, int64_t s,
                           Diag *diag) {
    const int64_t origin = depths->our_origin.items[s];
    *out = find_number(depths->their_origin, origin);
    if (*out >= 0) return STATUS_OK;
    Status status = step_fail_option(
        d->objective.ctx, "match", diag,
        "origin: layer %lld of the student was layer %lld of the model as it was "
        "read; the teacher, of %d layers, has none from there",
        (long long)s, (long long)origin, depths->theirs);
    diag_hint(diag, "match: even goes by the share of the depth");
    return status;
}

/* The layers that a rule spreads over each other: `ours` of the student from `our_first`
 * on, `theirs` of the teacher. */
typedef struct Scope {
    int our_first, ours, their_first, theirs;
} Scope;

/* First layer of a stage, and how many it has. */
static void find_stage(const Graph *graph, const char *stack, int stage, int *first,
                       int *layers) {
    const int depth = graph_layer_count(graph, stack);
    *first = *layers = 0;
    for (int l = 0; l < depth; l++) {
        if (graph_layer_stage(graph, stack, l) != stage) continue;
        if ((*layers)++ == 0) *first = l;
    }
}

/* The stage of student layer `s` on both sides, where they have as many stages; else all
 * layers. */
static Scope find_scope(const Distill *d, const Depths *depths, int64_t s) {
    const Graph *ours = d->objective.model->graph, *theirs = d->objective.teacher_graph;
    const char *here = d->student_stack, *there = d->teacher_stack;
    const Scope all = {0, depths->ours, 0, depths->theirs};
    const int stage = graph_layer_stage(ours, here, (int)s);
    Scope scope;
    if (graph_layer_stage(ours, here, depths->ours) !=
        graph_layer_stage(theirs, there, depths->theirs))
        return all;
    find_stage(ours, here, stage, &scope.our_first, &scope.ours);
    find_stage(theirs, there, stage, &scope.their_first, &scope.theirs);
    return scope.theirs ? scope : all;
}

/* Every n-th layer of the teacher, n as given or as the depths say. */
static Status match_every(int64_t *out, Distill *d, const Scope *scope, int64_t s,
                          Diag *diag) {
    const int64_t given = d->options->every;
    const int64_t n = given ? given : scope->theirs / scope->ours;
    *out = n * (s + 1) - 1;
    if (!given && scope->theirs % scope->ours)
        return step_fail_option(d->objective.ctx, "match", diag,
                                "every: expected the student's %d layers to divide the "
                                "teacher's %d, or `every`",
                                scope->ours, scope->theirs);
    if (*out < scope->theirs) return STATUS_OK;
    return step_fail_option(d->objective.ctx, "every", diag,
                            "expected at most %d, so that the student's layer %lld has "
                            "its match among the teacher's %d, found %lld",
                            scope->theirs / (int)(s + 1),
                            (long long)(scope->our_first + s), scope->theirs,
                            (long long)n);
}

static Status match_rule(int64_t *out, Distill *d, const Depths *depths, int64_t s,
                         Diag *diag) {
    const Scope scope = find_scope(d, depths, s);
    const int64_t at = s - scope.our_first;
    const int64_t steps = scope.ours > 1 ? scope.ours - 1 : 1;
    switch (d->options->match) {
    case MATCH_ORIGIN: return match_origin(out, d, depths, s, diag);
    case MATCH_EVERY: TRY(match_every(out, d, &scope, at, diag)); break;
    case MATCH_ENDS: /* first with first, last with last, evenly in between, rounded */
        *out = (2 * at * (scope.theirs - 1) + steps) / (2 * steps);
        break;
    default: /* the teacher's layer that ends at the same share of the depth */
        *out = (at + 1) * scope.theirs / scope.ours - 1;
        if (*out < 0) *out = 0;
    }
    *out += scope.their_first;
    return STATUS_OK;
}

static Status match_stacks(Distill *d, Diag *diag) {
    const DistillOptions *options = d->options;
    const IntList students = options->student_layers, teachers = options->teacher_layers;
    Objective *o = &d->objective;
    Depths depths;
    TRY(read_depths(&depths, d, d->student_stack, d->teacher_stack, diag));
    const int count = students.count ? students.count : depths.ours;
    if (teachers.count && teachers.count != count)
        return step_fail_option(o->ctx, "teacher_layers", diag,
                                "expected %d layers, found %d", count, teachers.count);
    d->matches = ARENA_ARRAY(o->arena, DistillMatch, (size_t)count);
    for (int i = 0; i < count; i++) {
        const int64_t s = students.count ? students.items[i] : i;
        int64_t t = teachers.count ? teachers.items[i] : 0;
        TRY(check_layer(d, false, d->student_stack, s, diag));
        if (!teachers.count) TRY(match_rule(&t, d, &depths, s, diag));
        TRY(check_layer(d, true, d->teacher_stack, t, diag));
        d->matches[d->match_count++] =
            (DistillMatch){d->student_stack, d->teacher_stack, (int)s, (int)t};
    }
    return STATUS_OK;
}

/* ---- tokens ---- */

/* The value [N, T, D] that a layer gives; NULL when it has none such. */
static const Node *layer_value(const Graph *graph, const char *stack, int layer) {
    const Node *output = graph_layer_output(graph, stack, layer);
    return output && output->type.rank == 3 ? output : NULL;
}

static const char *type_text(Arena *arena, const Node *node) {
    Text text = {0};
    type_print(&text, &node->type);
    const char *copy = arena_strdup(arena, text.data);
    text_free(&text);
    return copy;
}

/* Tokens of a value that are compared. */
static int64_t compared_tokens(const Node *value, int skip) {
    return value->type.dim[1] > 0 ? value->type.dim[1] - skip : value->type.dim[1];
}

/* Why a pair of layers cannot be compared: its tokens are others. NULL when it can. */
static const char *find_mismatch(const Distill *d, DistillMatch m) {
    const Objective *o = &d->objective;
    const Node *ours = layer_value(o->graph, m.student_stack, m.student);
    const Node *theirs = layer_value(o->teacher_graph, m.teacher_stack, m.teacher);
    if (!ours || !theirs ||
        compared_tokens(ours, d->student_skip) ==
            compared_tokens(theirs, d->teacher_skip))
        return NULL;
    return arena_printf(o->arena,
                        "layer %d of the student gives %s, layer %d of the teacher %s: "
                        "their tokens are not the same",
                        m.student, type_text(o->arena, ours), m.teacher,
                        type_text(o->arena, theirs));
}

Status distill_match(Distill *d, Diag *diag) {
    d->student_stack = find_stack(d->objective.model->graph);
    d->teacher_stack = find_stack(d->objective.teacher_graph);
    /* Tokens in front of the patches are left out when only one side has them (a
     * mean-pooled student keeps none). */
    const int ours = patches_extra_tokens(d->objective.model->graph);
    const int theirs = patches_extra_tokens(d->objective.teacher_graph);
    d->student_skip = ours == theirs ? 0 : ours;
    d->teacher_skip = ours == theirs ? 0 : theirs;
    if (!d->student_stack || !d->teacher_stack) {
        d->apart = d->student_stack ? "the teacher has no transformer layers"
                                    : "the student has no transformer layers";
        return STATUS_OK;
    }
    TRY(d->options->pairs.count ? match_pairs(d, diag) : match_stacks(d, diag));
    for (int i = 0; i < d->match_count && !d->apart; i++)
        d->apart = find_mismatch(d, d->matches[i]);
    return STATUS_OK;
}

/* ---- exits ---- */

/* Whether layers were taken out. */
static bool has_gaps(IntList lineage) {
    for (int i = 0; i < lineage.count; i++)
        if (lineage.items[i] != i) return true;
    return false;
}

/* The teacher's output that an early exit follows: the one behind the layer that stems
 * from the same layer. */
static Status find_exit(const char **name, Distill *d, const Exit *exit, Diag *diag) {
    const Objective *o = &d->objective;
    Depths depths;
    TRY(read_depths(&depths, d, graph_main_stack(o->model->graph),
                    graph_main_stack(o->teacher_graph), diag));
    const int64_t origin = depths.our_origin.items[exit->layer - 1];
    const int at = find_number(depths.their_origin, origin);
    if (at < 0 && (has_gaps(depths.our_origin) || has_gaps(depths.their_origin))) {
        step_fail(o->ctx, diag,
                  "\"%s\" of the student reads layer %lld of the model as it was read; "
                  "the teacher has no layer from there whose exit it could follow",
                  exit->output, (long long)origin);
        diag_hint(diag, "exits: last compares the last predictions alone");
        return STATUS_MODEL;
    }
    *name = at < 0 ? OUTPUT_LOGITS : arena_printf(o->arena, "exit.%d", at + 1);
    return STATUS_OK;
}

Status distill_teacher_exit(Node **out, Distill *d, const Exit *exit, Diag *diag) {
    const Objective *o = &d->objective;
    const char *name = exit->output;
    const bool early = strcmp(name, OUTPUT_LOGITS) != 0;
    if (early && exits_any(o->teacher_graph)) TRY(find_exit(&name, d, exit, diag));
    const Node *theirs = graph_output(o->teacher_graph, name);
    if (!theirs) theirs = graph_output(o->teacher_graph, OUTPUT_LOGITS);
    *out = objective_teacher_node(o, theirs);
    return STATUS_OK;
}
