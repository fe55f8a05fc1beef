/* Coupling: see exec/train/coupling.h. */
#include "exec/train/coupling.h"

#include "exec/run/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { OPERANDS = COUPLED_OPERANDS };

/* One loss: a graph of its own, whose inputs are the loss's operands. */
typedef struct CoupledLoss {
    const Node *node; /* of the training graph */
    Graph *graph;     /* just this loss */
    Node *loss, *inputs[OPERANDS];
    float *values[OPERANDS]; /* of all samples */
    int64_t width[OPERANDS]; /* numbers of a sample */
    CoupledValue *value;
    PlanCache *plans;
    Params *params;
} CoupledLoss;

struct Coupling {
    Arena *arena;
    CoupledLoss *losses;
    int count;
    Workspace *workspace;
    Coupled result;
};

static const char *input_name(Arena *arena, int i) {
    return arena_printf(arena, "operand.%d", i);
}

/* The loss alone, its operands being inputs. */
static Status loss_open(CoupledLoss *loss, Arena *arena, const Plan *plan,
                        const PlanNode *node, int64_t samples, Diag *diag) {
    loss->node = node->node;
    loss->graph = graph_create(arena, plan->graph->ops);
    for (int i = 0; i < node->node->in_count; i++) {
        Type type = plan->nodes[node->in[i].node].type;
        type.dim[0] = 1;
        loss->width[i] = type_count(&type);
        type.dim[0] = DIM_N;
        loss->inputs[i] = graph_input(loss->graph, input_name(arena, i), &type);
        const size_t count = (size_t)(samples * loss->width[i]);
        loss->values[i] = memory_alloc(count, sizeof(float));
        if (!(node->op->operands[i].flags & OPERAND_CONSTANT))
            loss->value->gradient[i] = memory_alloc(count, sizeof(float));
    }
    loss->loss =
        graph_insert(loss->graph, NULL, node->op, loss->inputs, node->node->in_count);
    if (node->op->attrs_size > 0)
        memcpy(loss->loss->attrs, node->node->attrs, node->op->attrs_size);
    TRY(node_infer(loss->loss, diag));
    graph_number(loss->graph);
    const PlanOptions options = {.loss = loss->loss, .input_gradients = true};
    loss->plans = plan_cache_create(loss->graph, NULL, &options, PLAN_CACHE_BYTES);
    return params_create(&loss->params, loss->graph, PRECISION_F32, false, diag);
}

size_t coupling_bytes(const Plan *plan, int64_t samples) {
    size_t bytes = 0;
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        for (int j = 0; node->op->couples && j < node->in_count; j++) {
            const PlanNode *in = &plan->nodes[node->in[j].node];
            const bool constant = node->op->operands[j].flags & OPERAND_CONSTANT;
            bytes += (size_t)(samples * (in->count / in->type.dim[0])) * sizeof(float) *
                     (constant ? 1 : 2);
        }
    }
    return bytes;
}

Status coupling_create(Coupling **out, const Plan *plan, int64_t samples, Diag *diag) {
    int count = 0;
    for (int i = 0; i < plan->node_count; i++) count += plan->nodes[i].op->couples;
    *out = NULL;
    if (count == 0) return STATUS_OK;
    Arena *arena = arena_create();
    Coupling *coupling = ARENA_NEW(arena, Coupling);
    coupling->arena = arena;
    coupling->losses = ARENA_ARRAY(arena, CoupledLoss, (size_t)count);
    coupling->result.losses =
        ARENA_ARRAY(arena, CoupledValue *, (size_t)plan->index_count);
    Status status = workspace_create(&coupling->workspace, diag);
    for (int i = 0; i < plan->node_count && status == STATUS_OK; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (!node->op->couples) continue;
        CoupledLoss *loss = &coupling->losses[coupling->count++];
        loss->value = coupling->result.losses[node->node->id] =
            ARENA_NEW(arena, CoupledValue);
        status = loss_open(loss, arena, plan, node, samples, diag);
    }
    if (status == STATUS_OK)
        *out = coupling;
    else
        coupling_destroy(coupling);
    return status;
}

void coupling_destroy(Coupling *coupling) {
    if (!coupling) return;
    for (int i = 0; i < coupling->count; i++) {
        CoupledLoss *loss = &coupling->losses[i];
        for (int j = 0; j < OPERANDS; j++) {
            free(loss->values[j]);
            free(loss->value->gradient[j]);
        }
        plan_cache_destroy(loss->plans);
        params_destroy(loss->params);
        if (loss->graph) graph_release(loss->graph);
    }
    workspace_destroy(coupling->workspace);
    arena_destroy(coupling->arena);
}

void coupling_take(Coupling *coupling, const Workspace *workspace, int64_t first,
                   int64_t n) {
    for (int i = 0; i < coupling->count; i++) {
        const CoupledLoss *loss = &coupling->losses[i];
        for (int j = 0; j < loss->node->in_count; j++)
            memcpy(loss->values[j] + first * loss->width[j],
                   workspace_value(workspace, loss->node->in[j]),
                   (size_t)(n * loss->width[j]) * sizeof(float));
    }
}

Status coupling_gather(Coupling *coupling, const int64_t *samples, Diag *diag) {
    size_t *bytes = memory_alloc((size_t)ranks_count(), sizeof *bytes);
    Status status = STATUS_OK;
    for (int i = 0; i < coupling->count; i++) {
        const CoupledLoss *loss = &coupling->losses[i];
        for (int j = 0; j < loss->node->in_count && status == STATUS_OK; j++) {
            for (int r = 0; r < ranks_count(); r++)
                bytes[r] = (size_t)(samples[r] * loss->width[j]) * sizeof(float);
            status = ranks_gather_parts(loss->values[j], bytes, diag);
        }
    }
    free(bytes);
    return status;
}

static Status loss_run(CoupledLoss *loss, Workspace *workspace, int64_t samples,
                       Diag *diag) {
    const RunMode mode = {.training = true};
    TRY(workspace_bind_cached(workspace, loss->plans, samples, NULL, loss->params, diag));
    for (int i = 0; i < loss->node->in_count; i++)
        memcpy(workspace_input(workspace, loss->inputs[i]->name), loss->values[i],
               (size_t)(samples * loss->width[i]) * sizeof(float));
    run_forward(workspace, mode);
    run_backward(workspace, mode, 1, NULL);
    loss->value->value = *(const float *)workspace_value(workspace, loss->loss);
    for (int i = 0; i < loss->node->in_count; i++)
        if (loss->value->gradient[i])
            memcpy(loss->value->gradient[i],
                   workspace_input_gradient(workspace, loss->inputs[i]),
                   (size_t)(samples * loss->width[i]) * sizeof(float));
    return STATUS_OK;
}

Status coupling_run(Coupling *coupling, int64_t samples, Diag *diag) {
    coupling->result.samples = samples;
    for (int i = 0; i < coupling->count; i++)
        TRY(loss_run(&coupling->losses[i], coupling->workspace, samples, diag));
    return STATUS_OK;
}

const Coupled *coupling_result(const Coupling *coupling) {
    return &coupling->result;
}
