/* Keepers of all ranks: see session/reuse/job_reuse.h. */
#include "session/reuse/job_reuse.h"

#include "exec/run/ranks.h"
#include "io/files/json.h"
#include "io/formats/modelfile.h"
#include "session/job.h"
#include "session/reuse/train_file.h"

struct JobReuse {
    StepReuse *own;               /* rank 0's; NULL on the others */
    const StepKeeper *steps;      /* of `own` */
    const TrainKeeper *trainings; /* likewise */
    Status failed;                /* of sending what was found; told by `begin` */
    StepKeeper keeper;
    TrainKeeper train_keeper;
    bool keeps_trainings;
};

/* ---- steps ---- */

/* Reads an entry as rank 0 has sent it. */
static Status read_entry(StepEntry *entry, const Text *text, Arena *arena, Diag *diag) {
    Tree *map = NULL;
    TRY(json_parse(&map, arena, "rank 0", arena_strdup(arena, text->data), text->length,
                   diag));
    return step_entry_read(entry, map, diag);
}

static bool job_find(void *self, int index, const char *state, Arena *arena,
                     StepEntry *entry, Diag *diag) {
    JobReuse *job = self;
    Text text = {0};
    if (job->failed != STATUS_OK) return false;
    if (job->own && job->steps->find(job->steps->self, index, state, arena, entry, diag))
        tree_print_json(&text, step_entry_tree(arena, entry), 0);
    Status status = job_send_text(&text, diag);
    const bool found = text.length > 0;
    if (status == STATUS_OK && found) {
        const Status read = job->own ? STATUS_OK : read_entry(entry, &text, arena, diag);
        status = ranks_agree(read, diag);
    }
    text_free(&text);
    job->failed = status;
    return found && status == STATUS_OK;
}

static Model *job_model(void *self, const char *state, const OpTable *ops, Diag *diag) {
    JobReuse *job = self;
    Model *model = NULL;
    JobFile file = {.descriptor = -1};
    if (job->failed != STATUS_OK) return NULL;
    if (job->own) model = job->steps->model(job->steps->self, state, ops, diag);
    Status status =
        job_send_file(&file, model ? step_reuse_model_path(job->own) : NULL, diag);
    if (status == STATUS_OK && file.path) {
        const Status read =
            job->own ? STATUS_OK : modelfile_read(&model, file.path, ops, true, diag);
        status = ranks_agree(read, diag);
    }
    job_file_close(&file);
    job->failed = status;
    if (status == STATUS_OK) return model;
    model_destroy(model);
    return NULL;
}

static Status job_begin(void *self, int index, const char *state, Diag *diag) {
    const JobReuse *job = self;
    if (job->failed != STATUS_OK || !job->own) return job->failed;
    return job->steps->begin(job->steps->self, index, state, diag);
}

static void job_keep(void *self, int index, const char *state, const StepEntry *entry,
                     Model *model, Diag *diag) {
    const JobReuse *job = self;
    if (job->own) job->steps->keep(job->steps->self, index, state, entry, model, diag);
}

/* ---- trainings: `due` and `save` are called in rank 0 ---- */

static bool train_due(void *self, int64_t done, int64_t total) {
    const TrainKeeper *own = ((const JobReuse *)self)->trainings;
    return own->due(own->self, done, total);
}

static Status train_save(void *self, const TrainState *state, Diag *diag) {
    const TrainKeeper *own = ((const JobReuse *)self)->trainings;
    return own->save(own->self, state, diag);
}

static Status train_load(void *self, int serial, TrainState **state, Diag *diag) {
    const JobReuse *job = self;
    const TrainKeeper *own = job->trainings;
    JobFile file = {.descriptor = -1};
    *state = NULL;
    if (own) TRY(own->load(own->self, serial, state, diag));
    const char *path = *state ? step_reuse_train_path(job->own, serial) : NULL;
    Status status = job_send_file(&file, path, diag);
    if (status == STATUS_OK && file.path)
        status =
            ranks_agree(own ? STATUS_OK : train_file_read(state, file.path, diag), diag);
    job_file_close(&file);
    return status;
}

/* ---- opening ---- */

Status job_reuse_open(JobReuse **out, Arena *arena, StepReuse *reuse, Diag *diag) {
    JobReuse *job = ARENA_NEW(arena, JobReuse);
    *job = (JobReuse){.own = reuse,
                      .steps = step_reuse_keeper(reuse),
                      .trainings = step_reuse_train_keeper(reuse),
                      .keeper = {job, job_find, job_model, job_begin, job_keep},
                      .train_keeper = {job, train_due, train_save, train_load}};
    char kept[2] = {job->steps != NULL, job->trainings != NULL};
    TRY(ranks_broadcast(kept, sizeof kept, 0, diag));
    job->keeps_trainings = kept[1];
    *out = kept[0] ? job : NULL;
    return STATUS_OK;
}

const StepKeeper *job_reuse_keeper(const JobReuse *reuse) {
    return reuse ? &reuse->keeper : NULL;
}

const TrainKeeper *job_reuse_train_keeper(const JobReuse *reuse) {
    return reuse && reuse->keeps_trainings ? &reuse->train_keeper : NULL;
}
