/* Which layers make a group: see multiplex.h. */
#include "passes/multiplex/multiplex.h"

#include "passes/layers.h"

/* Layers of one stage of the stack, which has layers left. */
typedef struct Stage {
    int first, layers;
} Stage;

/* Size of the groups of a stage. */
static Status stage_group(int64_t *size, const Multiplex *m, const Stage *stages,
                          int count, int stage, Diag *diag) {
    const MultiplexOptions *options = m->options;
    const int layers = stages[stage].layers;
    const bool left = options->layers_left.count > 0;
    const int64_t given = left ? options->layers_left.items[stage] : options->group;
    *size = left ? layers / given : given;
    if (layers % given == 0) return STATUS_OK;
    if (count == 1 && !left)
        return step_fail_option(m->ctx, "group", diag,
                                "expected a divisor of the model's %d layers, found %lld",
                                layers, (long long)given);
    return step_fail_option(
        m->ctx, left ? "layers_left" : "group", diag,
        "expected a divisor of the %d layers of stage %d (layers %d to "
        "%d), found %lld",
        layers, stage, stages[stage].first, stages[stage].first + layers - 1,
        (long long)given);
}

static Status group_stages(IntList *out, Multiplex *m, Diag *diag) {
    const MultiplexOptions *options = m->options;
    Stage *stages = ARENA_ARRAY(m->ctx->arena, Stage, (size_t)m->layers);
    const int left = options->layers_left.count;
    int count = 0, last = -1;
    for (int layer = 0; layer < m->layers; layer++) {
        const int stage = graph_layer_stage(m->graph, options->stack, layer);
        if (stage != last) stages[count++] = (Stage){layer, 0};
        stages[count - 1].layers++;
        last = stage;
    }
    if (left && left != count)
        return step_fail_option(m->ctx, "layers_left", diag,
                                "expected %d numbers, one for each stage, found %d",
                                count, left);
    *out = (IntList){ARENA_ARRAY(m->ctx->arena, int64_t, (size_t)m->layers), 0};
    for (int s = 0; s < count; s++) {
        int64_t size = 0;
        TRY(stage_group(&size, m, stages, count, s, diag));
        for (int64_t l = 0; l < stages[s].layers; l += size)
            out->items[out->count++] = size;
    }
    return STATUS_OK;
}

Status multiplex_groups(IntList *out, Multiplex *m, Diag *diag) {
    TRY(stack_check(m->ctx, m->graph, m->options->stack, diag));
    if (m->options->groups.count == 0) return group_stages(out, m, diag);
    *out = m->options->groups;
    int64_t total = 0;
    for (int i = 0; i < out->count; i++) total += out->items[i];
    if (total == m->layers) return STATUS_OK;
    return step_fail_option(m->ctx, "groups", diag,
                            "expected sizes that add up to %d, found %lld", m->layers,
                            (long long)total);
}
