/* Shorter training: lengths are read as they are written, with the pass's defaults. */
#include "session/search/training_share.h"

#include <math.h>
#include <string.h>

static const Pass *trainer(const Tree *step) {
    const Pass *pass = pass_find(step->key);
    return pass && (pass->flags & PASS_TRAINS) ? pass : NULL;
}

/* An option that is a whole number, -1 = it is something else. */
static int64_t whole_option(const Tree *options, const char *name, int64_t otherwise) {
    const Tree *value = tree_get(options, name);
    if (!value) return otherwise;
    return value->kind == TREE_INT ? value->integer : -1;
}

/* Samples of the data set that a step trains on, 0 = not known. */
static int64_t samples_of(const Session *session, const Tree *options) {
    const Tree *name = tree_get(options, "data");
    for (int i = 0; name && name->kind == TREE_STRING && i < session->data.count; i++) {
        const DataEntry *entry = &session->data.entries[i];
        if (strcmp(entry->name, name->string) == 0)
            return entry->batches ? entry->batches->count : 0;
    }
    return 0;
}

/* Optimiser steps that a step of the recipe takes, 0 = not known. A pass that trains has
 * TrainOptions first. */
static int64_t steps_of(const Session *session, const Pass *pass, const Tree *options) {
    const TrainOptions *usual = pass->defaults;
    const int64_t steps = whole_option(options, "steps", usual->steps);
    const int64_t epochs = whole_option(options, "epochs", usual->epochs);
    const int64_t batch = whole_option(options, "batch_size", usual->batch_size);
    const int64_t samples = samples_of(session, options);
    if (steps != 0) return steps > 0 ? steps : 0;
    if (epochs <= 0 || batch <= 0) return 0;
    return epochs * ((samples + batch - 1) / batch);
}

int64_t training_steps(const Session *session) {
    int64_t sum = 0;
    for (int i = 0; i < session->recipe.step_count; i++) {
        const Step *step = &session->recipe.steps[i];
        if (step->pass->flags & PASS_TRAINS)
            sum += steps_of(session, step->pass, step->source.options);
    }
    return sum;
}

void training_shorten(const Session *session, Arena *arena, Tree *passes, double share) {
    for (Tree *step = passes->first; step; step = step->next) {
        for (Tree *entry = step->kind == TREE_MAP ? step->first : NULL; entry;
             entry = entry->next) {
            Tree *inner =
                strcmp(entry->key, "repeat") == 0 ? tree_get(entry, "passes") : NULL;
            if (inner && inner->kind == TREE_LIST)
                training_shorten(session, arena, inner, share);
            const Pass *pass = entry->kind == TREE_MAP ? trainer(entry) : NULL;
            const int64_t steps = pass ? steps_of(session, pass, entry) : 0;
            if (steps <= 0) continue;
            Tree *epochs = tree_get(entry, "epochs");
            if (epochs) tree_remove(epochs); /* steps say it now */
            tree_put_int(arena, entry, "steps",
                         (int64_t)fmax(1, ceil(share * (double)steps)));
        }
    }
}
