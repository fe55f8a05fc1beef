/* States of training: the first byte says what is trained. The file is read as it is;
 * where only its hash is wrong, as in nearly all that a fuzzer makes, training is given
 * the state all the same, and goes on from it or refuses it. */
#include "io/files/json.h"
#include "io/formats/safetensors.h"
#include "session/reuse/train_file.h"
#include "tests/exec/prior_fixture.h"
#include "tests/fuzz/fuzz.h"

enum { SETUPS = 6, BATCH = 50 };

static Status measure(void *self, double *value, Diag *diag) {
    const Graph *graph = *(Graph **)self;
    (void)diag;
    float weight;
    tensor_read_f32(&graph_storage(graph, "out.weight")->tensor, 0, 1, &weight);
    *value = (double)weight;
    return STATUS_OK;
}

/* Two or three steps. */
static TrainOptions setup_options(int setup, const TrainMeasure *dev) {
    TrainOptions options = train_defaults;
    options.batch_size = BATCH;
    options.lr = 0.02;
    switch (setup % SETUPS) {
    case 1: options.optimizer = OPTIMIZER_SGD; break;
    case 2: options.ema = 0.9, options.moments = MOMENTS_BF16; break;
    case 3: options.objective = OBJECTIVE_VARIATIONAL; break;
    case 4: options.objective = OBJECTIVE_MAP, options.steps = 3; break;
    case 5:
        options.dev = "dev", options.measure = dev, options.keep = KEEP_BEST;
        options.dev_every = 1, options.patience = 2, options.log_every = 1;
        options.steps = 3;
        break;
    default: break;
    }
    return options;
}

static void setup_open(Fixture *f, const TrainOptions *options) {
    model_open(f, 0.3);
    if (options->objective == OBJECTIVE_LIKELIHOOD) return;
    put_gaussian(f, "in.weight", 1, 0.05);
    put_gaussian(f, "out.bias", 5, 0.05);
}

/* ---- the keeper ---- */

/* What the file holds, whatever its hash says. */
static Status read_unhashed(TrainState **out, const char *path, Diag *diag) {
    Checkpoint *file = NULL;
    TRY(safetensors_read(&file, path, diag));
    TrainState *state = train_state_create();
    const Tree *numbers = tree_get(file->metadata, "numbers");
    const char *text = numbers && numbers->kind == TREE_STRING ? numbers->string : "{}";
    const Status status =
        json_parse(&state->numbers, state->arena, path, text, strlen(text), diag);
    for (int i = 0; i < file->count; i++)
        train_state_add(state, "", file->tensors[i].name,
                        tensor_retain(&file->tensors[i].tensor));
    checkpoint_destroy(file);
    if (status == STATUS_OK)
        *out = state;
    else
        train_state_destroy(state);
    return status;
}

static Status load(void *self, int serial, TrainState **state, Diag *diag) {
    const FuzzPath *file = self;
    Diag *unread = diag_create();
    Status status = train_file_read(state, file->path, unread);
    fuzz_expect(serial == 0, "the only training");
    fuzz_told(status, unread);
    diag_destroy(unread);
    return status == STATUS_OK ? STATUS_OK : read_unhashed(state, file->path, diag);
}

static bool due(void *self, int64_t done, int64_t total) {
    (void)self;
    fuzz_expect(done >= 1 && done <= total, "a step of the run");
    return true;
}

/* Keeps it where the input lay. */
static Status save(void *self, const TrainState *state, Diag *diag) {
    const FuzzPath *file = self;
    return train_file_write(file->path, state, diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    FuzzPath file;
    Fixture f;
    TrainReport report;
    fuzz_file(&file, ".safetensors", data + 1, size - 1);
    const TrainMeasure dev = {.self = &f.graph, .measure = measure};
    const TrainKeeper keeper = {&file, due, save, load};
    TrainOptions options = setup_options(data[0], &dev);
    options.keeper = &keeper;
    setup_open(&f, &options);
    const Status status = run_training(&f, &options, 7, 1, &report);
    fuzz_told(status, f.diag);
    if (status == STATUS_OK)
        fuzz_expect(report.steps >= 1 && report.steps <= report.total, "steps were done");
    model_close(&f);
    fuzz_remove(&file);
    return 0;
}
