/* Data sets against the model: see pipeline_data.h. */
#include "passes/pipeline/pipeline_data.h"

#include "exec/run/feed.h"

#include <string.h>

/* The data set that a step names in its one option for that; NULL when it has none. */
static const char *step_data(const Step *step) {
    const char *option = step->pass->data_options;
    const Field *field = option ? field_find(step->pass->fields, option) : NULL;
    if (!field || field->kind != FIELD_STRING) return NULL;
    return *(const char *const *)((const char *)step->options + field->offset);
}

/* Whether a step before `index` reads the data set called `name`. */
static bool is_read_before(const Recipe *recipe, int index, const char *name) {
    for (int i = 0; i < index; i++) {
        const char *earlier = step_data(&recipe->steps[i]);
        if (earlier && strcmp(earlier, name) == 0) return true;
    }
    return false;
}

static Status check_set(Graph *graph, const Batches *data, Diag *diag) {
    Node *logits = graph_output(graph, OUTPUT_LOGITS);
    if (!logits) return STATUS_OK;
    if (logits->type.rank == 2) TRY(feed_check_labels(data, logits->type.dim[1], diag));
    return feed_check_samples(graph, &logits, 1, data, diag);
}

Status pipeline_check_data(int *index, Model *model, const Recipe *recipe,
                           const PipelineOptions *options, Diag *diag) {
    for (*index = 0; *index < recipe->step_count; ++*index) {
        const Step *step = &recipe->steps[*index];
        const char *name = step_data(step);
        Batches *data = NULL;
        if (!name || is_read_before(recipe, *index, name)) continue;
        TRY(options->data(options->self, name,
                          option_loc(&step->source, step->pass->data_options), &data,
                          diag));
        TRY(check_set(model->graph, data, diag));
    }
    return STATUS_OK;
}
