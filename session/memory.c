/* Memory: see memory.h. */
#include "session/memory.h"

#include "io/formats/load.h"
#include "ir/mapped.h"
#include "ir/resident.h"
#include "session/units.h"

/* The program and its libraries, what recipes, plans and reports take, and the reading
 * process of HDF5; of a thread its stack, the library's buffer and scratch. */
#define PROGRAM_BYTES ((int64_t)40 << 20)
#define THREAD_BYTES  ((int64_t)4 << 20)

/* Whether a step goes over a data set; of a plug-in's nobody knows. */
static bool uses_data(const Step *step, Arena *arena) {
    const char *rest = step->pass->data_options, *name;
    if (step->pass->origin) return true;
    while ((name = data_option_next(&rest, arena)))
        if (tree_get_nonnull(step->source.options, name)) return true;
    return false;
}

bool memory_streams(const Session *session) {
    const Recipe *recipe = &session->recipe;
    for (int i = 0; i < recipe->step_count; i++) {
        const Step *step = &recipe->steps[i];
        if (!(step->pass->flags & PASS_STREAMS) && uses_data(step, session->arena))
            return false;
    }
    return true;
}

/* ---- weights ---- */

static bool changes(const ReportStep *step) {
    return !(step->step->pass->flags & PASS_MEASURES);
}

/* Number of the step, from 0, that left the weights that step `index` gets; -1 = those of
 * the input. */
static int version_before(const RunReport *report, int index) {
    int before = index - 1;
    while (before >= 0 && !changes(&report->steps[before])) before--;
    return before;
}

static int64_t version_bytes(const RunReport *report, int version) {
    if (version < 0) return report->start.bytes;
    const StepResult *result = &report->steps[version].result;
    if (result->train_bytes == 0) return result->measure.bytes;
    return result->measure.parameters * (int64_t)sizeof(float);
}

/* Bytes of the versions of the model that snapshots before step `index` keep, other than
 * the input and `current`. */
static int64_t snapshot_bytes(const RunReport *report, int index, int current) {
    int64_t bytes = 0;
    for (int i = 0; i < index; i++) {
        const int version = version_before(report, i);
        if (recipe_snapshot_made(report->steps[i].step) && version >= 0 &&
            version != current)
            bytes += version_bytes(report, version);
    }
    return bytes;
}

/* What models take during step `index`; behind the last one, when the model is written.
 */
static int64_t weight_bytes(const RunReport *report, int index) {
    const int before = version_before(report, index);
    int64_t bytes = version_bytes(report, -1);
    if (before >= 0) bytes += version_bytes(report, before);
    if (index < report->count && changes(&report->steps[index]))
        bytes += version_bytes(report, index);
    return bytes + snapshot_bytes(report, index, before);
}

/* Whether the model was read as its weights lie in a file. */
static bool reads_pieces(const Session *session) {
    const ModelFormat *format = session->input.built || !session->input.path
                                    ? NULL
                                    : model_format_of(session->input.path);
    return format && format->pieces && format->pieces(session->input.shapes);
}

/* Whether nothing takes more than a piece of a tensor at a time at step `index`, or
 * behind the last one, when the model is written. */
static bool takes_pieces(const Session *session, int index) {
    const RunReport *report = &session->planned;
    if (index < report->count)
        return report->steps[index].result.stays || !changes(&report->steps[index]);
    bool pieces = true;
    for (int i = 0; i < session->outputs.count; i++)
        pieces = pieces && session->outputs.items[i].pieces;
    return pieces;
}

/* Bytes that stay of a streamed model: what may stay of files and of other memory, and
 * two pieces that are read and written, or the largest tensors, in float. */
static int64_t streamed_bytes(const Graph *graph, bool pieces) {
    int64_t largest = (int64_t)PIECE_BYTES;
    for (int i = 0; i < graph->storage_count && !pieces; i++) {
        const int64_t count = tensor_count(&graph->storages[i]->tensor);
        if (count * (int64_t)sizeof(float) > largest)
            largest = count * (int64_t)sizeof(float);
    }
    return 2 * (int64_t)RESIDENT_BYTES + 2 * largest;
}

/* ---- the rest ---- */

/* Bytes of a data set's samples in memory, as texts and as numbers. */
static int64_t data_bytes(const Batches *data) {
    int64_t numbers = 0;
    Type bound;
    for (int i = 0; i < data->column_count; i++) {
        int64_t sizes[DIM_SYMBOLS] = {0};
        for (int k = 0; k < DIM_SYMBOLS; k++) sizes[k] = 1;
        if (type_bind(&data->columns[i].type, sizes, &bound))
            numbers += type_count(&bound);
    }
    int64_t bytes = data->count * numbers * (int64_t)sizeof(float);
    for (int64_t i = 0; data->length && i < data->count; i++) {
        bytes += data->length(data, i) * 3 * (int64_t)sizeof(int32_t);
        if (data->source_length)
            bytes += data->source_length(data, i) * 3 * (int64_t)sizeof(int32_t);
    }
    return bytes;
}

/* The most that reading one of the data sets took beside what stays of them. */
static int64_t opening_bytes(const Session *session) {
    int64_t most = 0;
    for (int i = 0; i < session->data.count; i++) {
        const Batches *data = session->data.entries[i].batches;
        if (data && data->opening_bytes > most) most = data->opening_bytes;
    }
    return most;
}

/* What there is at all steps beside the model. */
static int64_t base_bytes(const Session *session) {
    int64_t bytes = PROGRAM_BYTES + session->threads * THREAD_BYTES;
    for (int i = 0; i < session->data.count; i++)
        if (session->data.entries[i].batches)
            bytes += data_bytes(session->data.entries[i].batches);
    for (const OtherModel *other = session->others; other; other = other->next)
        bytes += (int64_t)graph_parameter_bytes(other->model->graph);
    return bytes;
}

/* What a step works with. */
static int64_t work_bytes(const ReportStep *step) {
    const StepResult *result = &step->result;
    const size_t most =
        result->train_bytes > result->run_bytes ? result->train_bytes : result->run_bytes;
    const bool compared = step->step->pass->exactness == PASS_EXACT && changes(step);
    const int64_t doubles = (int64_t)sizeof(double) * result->measure.parameters;
    return (int64_t)most + (compared ? 2 * doubles : 0);
}

void memory_foretell(Session *session) {
    RunReport *report = &session->planned;
    const int64_t base = base_bytes(session);
    const bool streams = memory_streams(session);
    const Graph *input = session->input.shapes->graph;
    const bool pieces = reads_pieces(session);
    for (int i = 0; i <= report->count; i++) {
        int64_t weights = weight_bytes(report, i);
        const int64_t few = streamed_bytes(input, pieces && takes_pieces(session, i));
        if (streams && few < weights) weights = few;
        const int64_t work = i < report->count ? work_bytes(&report->steps[i]) : 0;
        const int64_t memory = base + weights + work;
        if (i < report->count) report->steps[i].memory = memory;
        if (memory <= report->memory) continue;
        report->memory = memory;
        report->memory_step = i < report->count ? i : MEMORY_OF_FILES;
    }
    const int64_t opening = base + opening_bytes(session);
    if (opening <= report->memory) return;
    report->memory = opening;
    report->memory_step = MEMORY_OF_DATA;
}

Status memory_check(const Session *session, Diag *diag) {
    const RunReport *report = &session->planned;
    Arena *arena = session->arena;
    if (!session->options.memory || report->memory <= session->memory_limit)
        return STATUS_OK;
    const bool step = report->memory_step >= 0;
    const ReportStep *most = step ? &report->steps[report->memory_step] : NULL;
    const Loc at = step ? most->step->source.at : LOC_FILE(session->options.recipe);
    diag_fail(diag, STATUS_MEMORY, at, step ? most->step->source.key : NULL,
              "expected at most %s of memory (--memory %s), found that %s takes up to %s",
              text_size(arena, session->memory_limit), session->options.memory,
              step                                    ? step_title(arena, most->step)
              : report->memory_step == MEMORY_OF_DATA ? "reading the data sets"
                                                      : "reading and writing the model",
              text_size(arena, report->memory));
    if (step && most->result.train_bytes > 0)
        diag_hint(diag, "`recompute: layers`, a smaller batch_size or micro_batch, fewer "
                        "shards or --threads take less");
    else if (step && most->result.run_bytes > 0)
        diag_hint(diag,
                  "a smaller batch_size, fewer samples or fewer --threads take less");
    else if (report->memory_step == MEMORY_OF_DATA)
        diag_hint(diag, "`format: corpus` reads a text window by window");
    else if (!memory_streams(session))
        diag_hint(diag, "a recipe without data sets reads its model piece by piece");
    return STATUS_MEMORY;
}
