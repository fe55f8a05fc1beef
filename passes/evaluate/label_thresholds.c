/* Label thresholds: see label_thresholds.h. */
#include "passes/evaluate/label_thresholds.h"

#include <math.h>
#include <string.h>

static const char PLACE[] = "labels"; /* in the provenance */

static Status fail_stored(const char *expected, Diag *diag) {
    diag_fail(diag, STATUS_MODEL, LOC_NONE, PLACE,
              "the model's provenance does not fit it: expected %s", expected);
    diag_hint(diag, "evaluate with thresholds: choose stores them anew");
    return STATUS_MODEL;
}

Status label_thresholds_read(double *thresholds, int64_t labels, bool *stored,
                             const Model *model, Diag *diag) {
    const Tree *place = tree_get_nonnull(model->provenance, PLACE);
    const Tree *list = tree_get(place, "thresholds");
    *stored = list != NULL;
    for (int64_t l = 0; l < labels; l++) thresholds[l] = LABEL_THRESHOLD;
    if (!list) return STATUS_OK;
    if (list->kind != TREE_LIST || list->count != labels)
        return fail_stored("one threshold for each label", diag);
    int64_t l = 0;
    for (const Tree *value = list->first; value; value = value->next) {
        double t;
        if (!tree_number(value, &t) || !(t >= 0 && t <= 1))
            return fail_stored("thresholds from 0 to 1", diag);
        thresholds[l++] = t;
    }
    return STATUS_OK;
}

bool label_thresholds_are_stale(Model *model) {
    const Tree *of = tree_get(tree_get_nonnull(model->provenance, PLACE), "model");
    char hash[HASH_TEXT_BYTES];
    if (!of || of->kind != TREE_STRING) return false;
    model_content_hash(model, hash);
    return strcmp(of->string, hash) != 0;
}

Status label_thresholds_store(const double *thresholds, int64_t labels, Model *model,
                              Diag *diag) {
    Arena *arena = model->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *list = tree_put_list(arena, map, "thresholds");
    for (int64_t l = 0; l < labels; l++) tree_add_real(arena, list, thresholds[l]);
    char hash[HASH_TEXT_BYTES];
    model_content_hash(model, hash);
    tree_put_string(arena, map, "model", hash);
    return tree_set(arena, model->provenance, PLACE, map, diag);
}

float label_probability(float logit) {
    return (float)(1 / (1 + exp(-(double)logit)));
}
