/* Before and after: see metric_change.h. */
#include "session/report/metric_change.h"

#include "passes/evaluate/evaluation.h"

#include <math.h>
#include <string.h>

const char *metric_how(Arena *arena, const char *key, const Tree *options) {
    static const char *const MEASURES[] = {"teacher", "fit"};
    if (strcmp(key, "bleu") == 0)
        return evaluate_decode_text(tree_get_nonnull(options, "decode"), arena);
    for (int i = 0; i < 2; i++) {
        const Tree *value = tree_get_nonnull(options, MEASURES[i]);
        if (value && value->kind == TREE_STRING)
            return arena_printf(arena, "%s %s", MEASURES[i], value->string);
    }
    return "labels";
}

/* Why two measurements are not subtracted; NULL = they may be. */
static const char *unlike(const char *key, const MetricPoint *a, const MetricPoint *b) {
    if (a->samples != b->samples) return "other samples";
    if (!a->how || !b->how || strcmp(a->how, b->how) == 0) return NULL;
    return strcmp(key, "bleu") == 0 ? "other decode" : "other measure";
}

MetricChange metric_change(const char *key, const MetricPoint *points, int count) {
    MetricChange found = {.before = NAN, .after = NAN, .change = NAN};
    int before = -1, after = -1;
    bool changed = false; /* behind `after` */
    for (int i = 0; i < count; i++) {
        changed |= points[i].changes;
        if (isnan(points[i].value)) continue;
        if (before < 0 && points[i].input_size) before = i;
        after = i;
        changed = false;
    }
    if (before == after && changed)
        after = -1;
    else if (before == after)
        before = -1;
    if (before >= 0) found.before = points[before].value;
    if (after >= 0) found.after = points[after].value;
    if (after >= 0 && changed) found.step = after + 1;
    if (before < 0 || after < 0) return found;
    found.unlike = unlike(key, &points[before], &points[after]);
    if (!found.unlike) found.change = found.after - found.before;
    return found;
}
