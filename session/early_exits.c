/* Inference that leaves at exits: see early_exits.h. */
#include "session/early_exits.h"

#include <string.h>

static Status fail_early(PassContext *ctx, const char *what, const char *hint,
                         Diag *diag) {
    const Status status = step_fail(ctx, diag, "%s", what);
    diag_hint(diag, "%s", hint);
    return status;
}

Status early_find(EarlyRun *run, Arena *arena, Model *model, const char *path,
                  const char *key, Diag *diag) {
    PassContext ctx = {.arena = arena, .source = {LOC_FILE(path), key, NULL}};
    *run = (EarlyRun){0};
    TRY(exits_find(&run->exits, arena, &ctx, model->graph, diag));
    if (run->exits.count == 1)
        return fail_early(&ctx, "the model has no early exits",
                          "add_exits gives a classifier exits", diag);
    TRY(exits_read_rule(&run->rule, arena, &ctx, model, &run->exits, diag));
    if (run->rule.criterion == EXIT_NEVER)
        return fail_early(&ctx, "the model has no stored rule for leaving at its exits",
                          "calibrate_exits finds a rule and stores it", diag);
    exits_warn_stale(&ctx, model, diag);
    run->logits = ARENA_ARRAY(arena, Node *, (size_t)run->exits.count);
    for (int i = 0; i < run->exits.count; i++)
        run->logits[i] = run->exits.items[i].logits;
    return STATUS_OK;
}

Status early_open(Dynamic **out, const EarlyRun *run, Graph *graph, int64_t runs,
                  Diag *diag) {
    return dynamic_open(out, graph, run->logits, run->exits.count, runs, diag);
}

/* DynamicSink: puts what came of some samples in its place. */
static Status keep_samples(void *self, const Fetch *what, const int *exit,
                           const float *logits, const void *const *columns, Diag *diag) {
    EarlyRun *run = self;
    const int64_t classes = run->results[0].tensor.dim[1];
    void *values = NULL, *layers = NULL;
    (void)columns;
    TRY(tensor_writable(&run->results[0].tensor, &values, diag));
    TRY(tensor_writable(&run->results[1].tensor, &layers, diag));
    for (int64_t i = 0; i < what->n; i++) {
        memcpy((float *)values + what->index[i] * classes, logits + i * classes,
               (size_t)classes * sizeof(float));
        ((int32_t *)layers)[what->index[i]] = run->exits.items[exit[i]].layer;
    }
    return STATUS_OK;
}

Status early_run(EarlyRun *run, Dynamic *ready, const Batches *data, int threads,
                 const Watch *watch, Diag *diag) {
    const int64_t shape[] = {data->count, run->logits[0]->type.dim[1]};
    run->results[0].name = OUTPUT_LOGITS;
    run->results[1].name = "exit_layer";
    TRY(tensor_create(&run->results[0].tensor, DTYPE_F32, 2, shape, diag));
    TRY(tensor_create(&run->results[1].tensor, DTYPE_I32, 1, shape, diag));
    return dynamic_over(ready, &run->rule, data, 0, EARLY_SAMPLES, threads, watch,
                        keep_samples, run, &run->report, diag);
}

void early_release(EarlyRun *run) {
    for (int i = 0; i < 2; i++) tensor_release(&run->results[i].tensor);
}

double early_mean_depth(const EarlyRun *run) {
    const Tensor *tensor = &run->results[1].tensor;
    const int32_t *layer = tensor_data(tensor);
    double sum = 0;
    for (int64_t i = 0; i < tensor->dim[0]; i++) sum += layer[i];
    return sum / (double)tensor->dim[0];
}
