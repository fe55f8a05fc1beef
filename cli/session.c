/* Session: the recipe's data sets and models, and what the pipeline asks of them. */
#include "cli/session.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"

#include <sched.h>
#include <string.h>

int threads_choose(int64_t wanted) {
    cpu_set_t set;
    if (wanted > 0) return (int)wanted;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

void model_strip(Model *model) {
    Graph *graph = model->graph;
    for (int i = 0; i < graph->storage_count; i++) {
        Tensor *tensor = &graph->storages[i]->tensor;
        Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
        tensor_release(tensor);
        *tensor = shape;
    }
}

Status session_open_data(Session *session, Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < session->data_count; i++) {
        DataEntry *entry = &session->data[i];
        Status opened =
            dataset_open(&entry->batches, entry->format, entry->options, entry->at, diag);
        if (opened != STATUS_OK) diag_note(diag, "data set \"%s\"", entry->name);
        if (status == STATUS_OK) status = opened;
    }
    return status;
}

/* PipelineOptions.data: a data set by name. */
static Status find_data(void *self, const char *name, Loc at, Batches **out, Diag *diag) {
    Session *session = self;
    for (int i = 0; i < session->data_count; i++) {
        if (strcmp(session->data[i].name, name) != 0) continue;
        *out = session->data[i].batches;
        return session_check_data(session, &session->data[i], at, diag);
    }
    return diag_fail(diag, STATUS_RECIPE, at, NULL, "unknown data set \"%s\"", name);
}

/* A model by path, read once; `shapes` = without weights. */
static Status other_model(Session *session, const char *path, bool shapes, Loc at,
                          Model **out, Diag *diag) {
    path = path_join(session->arena, session->recipe.folder, path);
    for (OtherModel *other = session->others; other; other = other->next) {
        if (strcmp(other->path, path) != 0 || other->shapes != shapes) continue;
        *out = other->model;
        return STATUS_OK;
    }
    Model *model = NULL;
    Status status = model_load(&model, path, ops_table(), !shapes, diag);
    if (status != STATUS_OK) {
        diag_note(diag, "named in %s:%d", at.file ? at.file : "the recipe", at.line);
        return status;
    }
    if (shapes) model_strip(model);
    if (path_is_folder(path)) vocabulary_note_folder(model, path);
    OtherModel *other = ARENA_NEW(session->arena, OtherModel);
    *other = (OtherModel){path, shapes, model, session->others};
    session->others = other;
    *out = model;
    return STATUS_OK;
}

/* PipelineOptions.model when running and when planning. */
static Status find_model(void *self, const char *path, Loc at, Model **out, Diag *diag) {
    Session *session = self;
    *out = session->input;
    return path ? other_model(session, path, false, at, out, diag) : STATUS_OK;
}

static Status find_shapes(void *self, const char *path, Loc at, Model **out, Diag *diag) {
    Session *session = self;
    *out = session->input_shapes;
    return path ? other_model(session, path, true, at, out, diag) : STATUS_OK;
}

Status session_plan(Session *session, Measure *start, const PipelineHooks *hooks,
                    Diag *diag) {
    session->input_shapes = model_copy(session->model);
    model_strip(session->input_shapes);
    Model *model = model_copy(session->input_shapes);
    PipelineOptions options = {.plan = true,
                               .threads = session->threads,
                               .self = session,
                               .data = find_data,
                               .model = find_shapes};
    if (hooks) options.hooks = *hooks;
    Measure measure;
    Status status = model_measure(start ? start : &measure, model, diag);
    if (status == STATUS_OK)
        status = pipeline_run(model, &session->recipe, &options, diag);
    model_destroy(model);
    return status;
}

Status session_run(Session *session, DumpWhen dump, const Watch *watch,
                   const PipelineHooks *hooks, Diag *diag) {
    session->input = model_copy(session->model);
    PipelineOptions options = {.dump = dump,
                               .threads = session->threads,
                               .watch = watch,
                               .self = session,
                               .data = find_data,
                               .model = find_model};
    if (hooks) options.hooks = *hooks;
    return pipeline_run(session->model, &session->recipe, &options, diag);
}

void session_close(Session *session) {
    for (OtherModel *other = session->others; other; other = other->next)
        model_destroy(other->model);
    for (int i = 0; i < session->data_count; i++)
        batches_destroy(session->data[i].batches);
    model_destroy(session->input_shapes);
    model_destroy(session->input);
    model_destroy(session->model);
}
