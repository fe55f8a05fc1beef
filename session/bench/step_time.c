/* Step time: see session/bench/step_time.h. */
#include "session/bench/step_time.h"

#include <math.h>
#include <string.h>

/* Rate of a kind on so many threads. */
static double rate_at(const Machine *machine, RateKind kind, int threads) {
    const double alone = machine->alone[kind].median;
    const double together = machine->together[kind].median;
    if (machine->threads == 1 || threads <= 1) return alone;
    if (threads >= machine->threads) return together;
    return alone + (together - alone) * (threads - 1) / (machine->threads - 1);
}

double work_products_seconds(const Machine *machine, const PlanWork *work, int threads) {
    const bool native = machine->alone[RATE_BF16].count > 0;
    return work->wide / rate_at(machine, RATE_BERT, threads) +
           work->narrow / rate_at(machine, RATE_NARROW, threads) +
           work->rounded / rate_at(machine, native ? RATE_BF16 : RATE_BERT, threads);
}

double work_memory_seconds(const Machine *machine, const PlanWork *work, int threads) {
    return work->bytes / rate_at(machine, RATE_ROWS, threads);
}

double update_bytes(const TrainWork *work, int64_t shards) {
    const double floats = 7 + 3 * (double)shards;
    return (double)work->weights * floats * sizeof(float);
}

/* ---- data ---- */

/* The data set that a step names; NULL where it is not open. */
static const Batches *step_batches(const Session *session, const Step *step) {
    const Tree *name = tree_get(step->source.options, "data");
    for (int i = 0; name && name->kind == TREE_STRING && i < session->data.count; i++)
        if (strcmp(session->data.entries[i].name, name->string) == 0)
            return session->data.entries[i].batches;
    return NULL;
}

/* Tokens of a sample as it is padded, on average; 0 where samples have none. */
static double mean_tokens(const Batches *data) {
    const int column = batches_column(data, "input_ids");
    double sum = 0;
    if (!data->length) {
        const Type *type = column < 0 ? NULL : &data->columns[column].type;
        return type && type->rank == 1 && type->dim[0] > 0 ? (double)type->dim[0] : 0;
    }
    for (int64_t i = 0; i < data->count; i++) sum += (double)batches_tokens(data, &i, 1);
    return data->count ? sum / (double)data->count : 0;
}

/* Work grows with the length of texts; that of attention's products grows faster, which
 * is left out. */
static double length_factor(const Batches *data, int64_t planned) {
    const double tokens = mean_tokens(data);
    return tokens > 0 && planned > 0 ? tokens / (double)planned : 1;
}

/* ---- steps ---- */

static int busy_threads(const Machine *machine, int64_t most) {
    return most < machine->threads ? (int)most : machine->threads;
}

static StepTime training_time(const Machine *machine, const StepResult *planned,
                              const TrainOptions *options, const Batches *data) {
    const TrainWork *work = &planned->train_work;
    const double factor = data ? length_factor(data, work->tokens) : 1;
    const PlanWork step = plan_work_times(work->work, factor);
    StepTime time = {.trains = true,
                     .threads = busy_threads(machine, planned->train_shards),
                     .times = options->steps};
    if (time.times == 0 && data)
        time.times =
            options->epochs * ((data->count + work->samples - 1) / work->samples);
    time.products = work_products_seconds(machine, &step, time.threads);
    time.memory = work_memory_seconds(machine, &step, time.threads);
    time.update = update_bytes(work, planned->train_shards) /
                  rate_at(machine, RATE_STREAM, time.threads);
    return time;
}

static StepTime evaluation_time(const Machine *machine, const StepResult *planned,
                                int64_t limit, const Batches *data) {
    const double factor = length_factor(data, planned->measure.tokens);
    const PlanWork one = plan_work_times(planned->measure.work, factor);
    const int64_t samples = limit > 0 && limit < data->count ? limit : data->count;
    const int threads = busy_threads(machine, samples);
    return (StepTime){.times = samples,
                      .threads = threads,
                      .products = work_products_seconds(machine, &one, threads),
                      .memory = work_memory_seconds(machine, &one, threads)};
}

StepTime step_time(const Machine *machine, const Session *session, int index) {
    const StepResult *planned = &session->planned.steps[index].result;
    const Step *step = &session->recipe.steps[index];
    const Batches *data = step_batches(session, step);
    const Tree *limit = tree_get(step->source.options, "limit");
    if ((step->pass->flags & PASS_TRAINS) && planned->train_work.samples > 0)
        return training_time(machine, planned, step->options, data);
    if (strcmp(step->pass->name, "evaluate") != 0 || !data) return (StepTime){0};
    return evaluation_time(machine, planned,
                           limit && limit->kind == TREE_INT ? limit->integer : 0, data);
}

double step_time_seconds(const StepTime *time) {
    return (double)time->times * (time->products + time->memory + time->update);
}

StepBound step_time_bound(const StepTime *time) {
    if (time->products >= fmax(time->memory, time->update)) return BOUND_PRODUCTS;
    return time->memory >= time->update ? BOUND_MEMORY : BOUND_UPDATE;
}

const char *step_bound_name(StepBound bound) {
    static const char *const NAMES[] = {"products", "memory", "update"};
    return NAMES[bound];
}
