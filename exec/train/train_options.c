/* Options of training: see exec/train/train_options.h. */
#include "exec/train/train_options.h"

#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const TrainOptions train_defaults = TRAIN_DEFAULTS;

/* ---- names ---- */

bool name_matches(const char *pattern, const char *name) {
    const char *star = NULL, *from = NULL; /* the last * and where it stops for now */
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

bool name_matches_any(const StringList *patterns, const char *name) {
    for (int i = 0; i < patterns->count; i++)
        if (name_matches(patterns->items[i], name)) return true;
    return false;
}

/* Length of the pattern in "pattern=factor" and the factor; -1 when malformed. */
static int parse_group(const char *group, double *factor) {
    const char *equals = strrchr(group, '=');
    if (!equals || equals == group) return -1;
    char *end = NULL;
    *factor = strtod(equals + 1, &end);
    const bool number = end != equals + 1 && !*end && isfinite(*factor) && *factor >= 0;
    return number ? (int)(equals - group) : -1;
}

Status train_check_options(const TrainOptions *options, Diag *diag) {
    double factor;
    for (int i = 0; i < options->lr_groups.count; i++)
        if (parse_group(options->lr_groups.items[i], &factor) < 0)
            return diag_fail(diag, STATUS_RECIPE, LOC_NONE, "lr_groups",
                             "expected \"name=factor\" or \"prefix*=factor\" with a "
                             "factor of at least 0, found \"%s\"",
                             options->lr_groups.items[i]);
    if (options->epochs > 0 || options->steps > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, LOC_NONE, "epochs",
                     "expected at least 1, or a number of steps, found 0");
}

double train_group_factor(const TrainOptions *options, const char *name) {
    const StringList *groups = &options->lr_groups;
    double product = 1, factor;
    for (int i = 0; i < groups->count; i++) {
        const int length = parse_group(groups->items[i], &factor);
        if (length < 0) continue;
        char *pattern = memory_alloc((size_t)length + 1, 1);
        memcpy(pattern, groups->items[i], (size_t)length);
        if (name_matches(pattern, name)) product *= factor;
        free(pattern);
    }
    return product;
}

/* ---- frozen storages ---- */

bool train_freezes(const TrainOptions *options, const char *name) {
    return name_matches_any(&options->freeze, name) ||
           (options->only.count > 0 && !name_matches_any(&options->only, name));
}

void train_freeze(Graph *graph, const TrainOptions *options, bool *was) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        was[i] = storage->frozen;
        if (train_freezes(options, storage->name)) storage->frozen = true;
    }
}

void train_unfreeze(Graph *graph, const bool *was) {
    for (int i = 0; i < graph->storage_count; i++) graph->storages[i]->frozen = was[i];
}

/* ---- the learning rate ---- */

/* Indices into SCHEDULE_NAMES. */
enum { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT };

double schedule_factor(const TrainOptions *options, int64_t step, int64_t total) {
    const int64_t warmup = (int64_t)llround(options->warmup * (double)total);
    if (step < warmup) return (double)(step + 1) / (double)warmup;
    if (options->schedule == SCHEDULE_CONSTANT || total <= warmup) return 1;
    double done = (double)(step - warmup) / (double)(total - warmup);
    if (done > 1) done = 1;
    const double left =
        options->schedule == SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(M_PI * done));
    return options->final_lr + (1 - options->final_lr) * left;
}
