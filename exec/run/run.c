/* Run: workspaces, and the two calls that execute a plan. See exec/run/run.h.
 *
 * Binding lays out the views and calls of a plan over the workspace once; a run only sets
 * what changes with its mode. The binds of a few plans are kept, because training and
 * evaluation switch between a full batch and a smaller last one. */
#include "exec/run/run.h"

#include "exec/linalg/blas.h"
#include "ir/random.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Plans whose binds a workspace keeps. */
enum { BINDS = 64 };

/* One call ready to run. */
typedef struct BoundCall {
    void (*run)(const Call *call);
    int64_t (*tiles)(const Call *call); /* NULL = it is not cut */
    Call call;
    const PlanNode *node;
    View *d_in;
} BoundCall;

/* A gradient view that lies in the caller's array. */
typedef struct WeightView {
    View *view;
    int64_t offset;
} WeightView;

typedef struct Bind {
    Arena *arena;
    Plan *plan;     /* retained */
    Params *params; /* retained */
    char *base;     /* of the workspace when it was laid out */
    BoundCall *forward, *backward;
    int forward_count, backward_count;
    WeightView *weights;
    int weight_count;
    const void *gradients; /* that the weight views point into */
    bool bound;            /* whether they point anywhere yet */
} Bind;

struct Workspace {
    Buf *buf;
    Team *team;   /* borrowed; NULL = none */
    Buf *scratch; /* of the team's threads but the first, one behind the other */
    size_t each;  /* bytes of one */
    Bind binds[BINDS];
    int next;    /* the bind to replace next */
    int current; /* -1 = none */
};

Status workspace_create(Workspace **out, Diag *diag) {
    (void)diag;
    blas_init();
    Workspace *workspace = memory_alloc(1, sizeof *workspace);
    workspace->current = -1;
    *out = workspace;
    return STATUS_OK;
}

static void bind_clear(Bind *bind) {
    if (!bind->arena) return;
    arena_destroy(bind->arena);
    plan_destroy(bind->plan);
    params_destroy(bind->params);
    *bind = (Bind){0};
}

void workspace_destroy(Workspace *workspace) {
    if (!workspace) return;
    for (int i = 0; i < BINDS; i++) bind_clear(&workspace->binds[i]);
    buf_release(workspace->buf);
    buf_release(workspace->scratch);
    free(workspace);
}

/* ---- binding ---- */

static void *buffer_data(const Bind *bind, int buffer) {
    return buffer < 0 ? NULL : bind->base + bind->plan->buffers[buffer].offset;
}

/* What a call reads of a node, or writes; `late` ones come after the forward run. */
static void *value_data(const Bind *bind, const PlanNode *node, bool late) {
    if (plan_is_param(node))
        return (void *)(uintptr_t)params_data(bind->params, node->node->storage);
    return buffer_data(bind, late ? plan_late_value(node) : node->value);
}

/* Behind all that the plan lays out. */
static char *room_data(const Bind *bind) {
    return bind->base + bind->plan->bytes;
}

/* A forward call, or what a backward call shares with it. */
static void lay_call(Bind *bind, BoundCall *step, const PlanNode *node, int scratch,
                     bool late) {
    View *in = ARENA_ARRAY(bind->arena, View, (size_t)node->in_count);
    step->node = node;
    plan_call(&step->call, in, bind->plan, node);
    step->call.scratch = buffer_data(bind, scratch);
    for (int j = 0; j < node->in_count; j++) {
        if (node->in[j].node < 0) continue;
        const PlanNode *operand = &bind->plan->nodes[node->in[j].node];
        in[j].data = value_data(bind, operand, late);
        in[j].packed = params_packed(bind->params, node->node, j);
        if (in[j].packed && !in[j].packed->data) step->call.scratch = room_data(bind);
        in[j].onednn = params_onednn(bind->params, node->node, j);
        in[j].rounded = params_rounded(bind->params, operand->node->storage);
    }
    step->call.out.data = value_data(bind, node, late);
    step->call.aux = buffer_data(bind, late ? plan_late_aux(node) : node->aux);
}

/* Gradient of one operand; that of weights is set at run time. */
static void lay_gradient(Bind *bind, View *view, const PlanOperand *in) {
    if (in->node < 0) return;
    const PlanNode *operand = &bind->plan->nodes[in->node];
    plan_view(view, operand);
    if (in->write == GRADIENT_NONE || in->write == GRADIENT_SHARE) return;
    view->accumulate = in->write != GRADIENT_SET;
    if (plan_is_param(operand))
        bind->weights[bind->weight_count++] = (WeightView){view, operand->offset};
    else
        view->data = buffer_data(bind, operand->gradient);
}

static void lay_forward(Bind *bind, BoundCall *step, const PlanNode *node, int scratch,
                        bool late) {
    lay_call(bind, step, node, scratch, late);
    step->run = node->kernel->forward;
    step->tiles = node->kernel->forward_tiles;
}

static void lay_backward(Bind *bind, const PlanNode *node) {
    BoundCall *step = &bind->backward[bind->backward_count++];
    lay_call(bind, step, node, node->backward_scratch, true);
    step->run = node->kernel->backward;
    step->tiles = node->kernel->backward_tiles;
    step->d_in = ARENA_ARRAY(bind->arena, View, (size_t)node->in_count);
    step->call.d_in = step->d_in;
    for (int j = 0; j < node->in_count; j++)
        lay_gradient(bind, &step->d_in[j], &node->in[j]);
    plan_view(&step->call.d_out, node);
    step->call.d_out.data = buffer_data(bind, node->gradient);
}

/* The calls after the forward run, in their order. */
static void lay_late(Bind *bind) {
    const Plan *plan = bind->plan;
    const int count = plan->end - plan->calls;
    const PlanNode **at = ARENA_ARRAY(bind->arena, const PlanNode *, (size_t)count);
    for (int i = 0; i < plan->node_count && count > 0; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (node->again >= 0) at[node->again - plan->calls] = node;
        if (node->backward >= 0) at[node->backward - plan->calls] = node;
    }
    for (int i = 0; i < count; i++) {
        const PlanNode *node = at[i];
        if (node && node->again == plan->calls + i)
            lay_forward(bind, &bind->backward[bind->backward_count++], node,
                        node->scratch_again, true);
        else if (node)
            lay_backward(bind, node);
    }
}

static void bind_lay(Bind *bind, char *base) {
    const Plan *plan = bind->plan;
    arena_destroy(bind->arena);
    bind->arena = arena_create();
    bind->base = base;
    bind->bound = false;
    bind->forward_count = bind->backward_count = bind->weight_count = 0;
    size_t calls = (size_t)plan->calls, operands = 0;
    for (int i = 0; i < plan->node_count; i++)
        operands += (size_t)plan->nodes[i].in_count;
    bind->forward = ARENA_ARRAY(bind->arena, BoundCall, calls);
    bind->backward = ARENA_ARRAY(bind->arena, BoundCall, (size_t)plan->end - calls);
    bind->weights = ARENA_ARRAY(bind->arena, WeightView, operands);
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].forward >= 0)
            lay_forward(bind, &bind->forward[bind->forward_count++], &plan->nodes[i],
                        plan->nodes[i].forward_scratch, false);
    lay_late(bind);
}

void workspace_share(Workspace *workspace, Team *team) {
    workspace->team = team;
}

size_t workspace_share_bytes(const Plan *plan) {
    size_t most = 0;
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (!node->kernel->forward_tiles && !node->kernel->backward_tiles) continue;
        const int buffer = node->forward_scratch; /* backward's has as many bytes */
        if (buffer >= 0 && plan->buffers[buffer].bytes > most)
            most = plan->buffers[buffer].bytes;
    }
    return (most + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
}

/* Scratch for the other threads of the team. */
static Status bind_share(Workspace *workspace, const Plan *plan, const Params *params,
                         Diag *diag) {
    const size_t most = workspace_share_bytes(plan), room = params_room_bytes(params);
    const size_t each = !workspace->team ? 0 : most > room ? most : room;
    const size_t others = workspace->team ? (size_t)team_threads(workspace->team) - 1 : 0;
    const size_t have = workspace->scratch ? buf_bytes(workspace->scratch) : 0;
    if (each <= workspace->each && others * workspace->each <= have) return STATUS_OK;
    buf_release(workspace->scratch);
    workspace->scratch = NULL;
    workspace->each = 0;
    TRY(buf_create(&workspace->scratch, each * others, diag));
    workspace->each = each;
    return STATUS_OK;
}

Status workspace_bind(Workspace *workspace, const Plan *plan, const Params *params,
                      Diag *diag) {
    if (plan->precision != params_precision(params))
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "plan and weights differ in precision");
    const size_t bytes = plan->bytes + params_room_bytes(params);
    TRY(bind_share(workspace, plan, params, diag));
    if (!workspace->buf || buf_bytes(workspace->buf) < bytes) {
        buf_release(workspace->buf); /* first: both need not exist at once */
        workspace->buf = NULL;
        workspace->current = -1;
        TRY(buf_create(&workspace->buf, bytes > 0 ? bytes : PLAN_ALIGNMENT, diag));
    }
    int chosen = 0;
    while (chosen < BINDS && (workspace->binds[chosen].plan != plan ||
                              workspace->binds[chosen].params != params))
        chosen++;
    if (chosen == BINDS) { /* a new one: which bind it replaces goes round */
        chosen = workspace->next;
        workspace->next = (chosen + 1) % BINDS;
        bind_clear(&workspace->binds[chosen]);
    }
    Bind *bind = &workspace->binds[chosen];
    if (!bind->plan) {
        bind->plan = plan_retain(plan);
        bind->params = params_retain(params);
    }
    char *base = (char *)(uintptr_t)buf_data(workspace->buf);
    if (bind->base != base) bind_lay(bind, base);
    workspace->current = chosen;
    return STATUS_OK;
}

Status workspace_bind_cached(Workspace *workspace, PlanCache *plans, int64_t samples,
                             const Fetch *what, const Params *params, Diag *diag) {
    Plan *plan = NULL;
    TRY(plan_cache_get(plans, samples, what, &plan, diag));
    const Status status = workspace_bind(workspace, plan, params, diag);
    plan_destroy(plan); /* the workspace has a reference of its own */
    return status;
}

/* ---- access ---- */

static const Bind *current(const Workspace *workspace) {
    return workspace->current < 0 ? NULL : &workspace->binds[workspace->current];
}

const Plan *workspace_plan(const Workspace *workspace) {
    return current(workspace)->plan;
}

static const PlanNode *find_input(const Plan *plan, const char *name) {
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (node->forward < 0 && node->node->name && strcmp(node->node->name, name) == 0)
            return node;
    }
    return NULL;
}

void *workspace_input(Workspace *workspace, const char *name) {
    const Bind *bind = current(workspace);
    const PlanNode *node = bind ? find_input(bind->plan, name) : NULL;
    return node ? buffer_data(bind, node->value) : NULL;
}

const PlanNode *workspace_input_node(const Workspace *workspace, const char *name) {
    const Bind *bind = current(workspace);
    return bind ? find_input(bind->plan, name) : NULL;
}

const void *workspace_value(const Workspace *workspace, const Node *node) {
    const Bind *bind = current(workspace);
    int i = bind ? plan_find(bind->plan, node) : -1;
    return i < 0 ? NULL : value_data(bind, &bind->plan->nodes[i], false);
}

size_t workspace_value_bytes(const Workspace *workspace, const Node *node) {
    const Bind *bind = current(workspace);
    const int i = bind ? plan_find(bind->plan, node) : -1;
    if (i < 0) return 0;
    const PlanNode *found = &bind->plan->nodes[i];
    return (size_t)found->count * plan_element_bytes(bind->plan, found);
}

const void *workspace_input_gradient(const Workspace *workspace, const Node *node) {
    const Bind *bind = current(workspace);
    int i = bind ? plan_find(bind->plan, node) : -1;
    return i < 0 ? NULL : buffer_data(bind, bind->plan->nodes[i].gradient);
}

double workspace_count_rows(const Workspace *workspace, const Node *node) {
    const Bind *bind = current(workspace);
    const PlanNode *planned = &bind->plan->nodes[plan_find(bind->plan, node)];
    return planned->op->count_rows(&bind->forward[planned->forward].call);
}

/* ---- running ---- */

static void set_mode(BoundCall *step, RunMode mode) {
    Call *call = &step->call;
    const Op *op = step->node->op;
    const int id = step->node->node->id;
    call->training = mode.training;
    call->first = mode.first;
    if (op->count_rows) { /* as given by the mode, or the call's own */
        const double given = mode.rows ? mode.rows[id] : -1;
        call->rows = given >= 0 ? given : op->count_rows(call);
    }
    if (op->traits & OP_STOCHASTIC) call->key = random_key(mode.key, (uint64_t)id);
}

/* What a loss came to over the whole mini-batch; NULL where it is this call's to compute.
 */
static const CoupledValue *coupled_value(const BoundCall *step, const RunMode *mode) {
    return mode->coupled && step->node->op->couples
               ? mode->coupled->losses[step->node->node->id]
               : NULL;
}

/* The rows of these samples of its gradients. The seed holds their share n / N of the
 * mini-batch, in which each is to count in full. */
static void give_gradients(const BoundCall *step, const RunMode *mode,
                           const CoupledValue *whole) {
    const float d_out = *(const float *)step->call.d_out.data;
    for (int j = 0; j < step->node->in_count; j++) {
        const View *d = &step->d_in[j];
        if (!d->data) continue;
        const float *from = whole->gradient[j] + mode->first * (d->count / d->dim[0]);
        const float by = d_out * (float)mode->coupled->samples / (float)d->dim[0];
        float *to = d->data;
        for (int64_t i = 0; i < d->count; i++)
            to[i] = (d->accumulate ? to[i] : 0) + by * from[i];
    }
}

/* Parts of a call that the threads of a team take one after the other. */
typedef struct Parts {
    const BoundCall *step;
    const Workspace *workspace;
    int64_t count;
    atomic_llong next;
} Parts;

static void run_parts(void *self, int me) {
    Parts *parts = self;
    Call call = parts->step->call;
    call.tiles = parts->count;
    const Workspace *w = parts->workspace;
    if (me > 0 && w->scratch) { /* else no call that is cut needs any */
        call.scratch =
            (char *)(uintptr_t)buf_data(w->scratch) + w->each * (size_t)(me - 1);
    }
    while ((call.tile = atomic_fetch_add(&parts->next, 1)) < parts->count)
        parts->step->run(&call);
}

/* Whole where it is not cut; else by parts, also in a thread alone. */
static void run_step(const Workspace *workspace, BoundCall *step) {
    Parts parts = {.step = step, .workspace = workspace};
    step->call.workers = workspace->team ? team_threads(workspace->team) : 1;
    parts.count = step->tiles ? step->tiles(&step->call) : 1;
    if (parts.count < 2)
        step->run(&step->call);
    else if (workspace->team)
        team_run(workspace->team, run_parts, &parts);
    else
        run_parts(&parts, 0);
}

/* A forward or backward call. */
static void run_call(const Workspace *workspace, BoundCall *step, const RunMode *mode) {
    const CoupledValue *whole = coupled_value(step, mode);
    if (whole && step->d_in) {
        give_gradients(step, mode, whole);
    } else if (whole) {
        *(float *)step->call.out.data = whole->value;
    } else {
        set_mode(step, *mode);
        run_step(workspace, step);
    }
}

void run_forward(Workspace *workspace, RunMode mode) {
    Bind *bind = &workspace->binds[workspace->current];
    for (int i = 0; i < bind->forward_count; i++)
        run_call(workspace, &bind->forward[i], &mode);
}

static void point_weights(Bind *bind, void *gradients) {
    if (bind->bound && bind->gradients == gradients) return;
    const size_t size = plan_real_bytes(bind->plan);
    for (int i = 0; i < bind->weight_count; i++) {
        const WeightView *weight = &bind->weights[i];
        weight->view->data =
            gradients ? (char *)gradients + (size_t)weight->offset * size : NULL;
    }
    bind->gradients = gradients;
    bind->bound = true;
}

void run_backward(Workspace *workspace, RunMode mode, double seed, void *gradients) {
    Bind *bind = &workspace->binds[workspace->current];
    const Plan *plan = bind->plan;
    if (plan->loss < 0 || plan->nodes[plan->loss].gradient < 0) return;
    const size_t size = plan_real_bytes(plan);
    void *d_loss = buffer_data(bind, plan->nodes[plan->loss].gradient);
    point_weights(bind, gradients);
    if (plan->precision == PRECISION_F64)
        *(double *)d_loss = seed;
    else
        *(float *)d_loss = (float)seed;
    for (int i = 0; i < bind->backward_count; i++) {
        BoundCall *step = &bind->backward[i];
        for (int j = 0; step->d_in && j < step->node->in_count; j++)
            if (step->node->in[j].write == GRADIENT_CLEAR_ADD)
                memset(step->d_in[j].data, 0, (size_t)step->d_in[j].count * size);
        run_call(workspace, step, &mode);
        if (mode.watch.called && step->d_in)
            mode.watch.called(mode.watch.self, step->node->backward);
    }
}
