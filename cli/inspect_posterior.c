/* What `compress inspect` says of the posterior of a model's weights. */
#include "cli/inspect.h"
#include "cli/text_table.h"

/* Appends ", 12 low_rank" for a form that occurs. */
static void add_form(Text *text, const Inspection *it, GaussianForm form) {
    int count = 0;
    int64_t samples = 0;
    for (int i = 0; i < it->storage_count; i++) {
        const Gaussian *g = it->storages[i].storage->gaussian;
        if (!g || g->form != form) continue;
        count++;
        samples = gaussian_samples(g);
    }
    if (count == 0) return;
    text_add(text, "%s%d %s", text->length ? ", " : "", count, gaussian_form_name(form));
    if (samples > 0) text_add(text, " of %lld samples", (long long)samples);
}

void inspect_print_posterior(const Inspection *it) {
    const Gaussian *first = NULL;
    int64_t elements = 0, bytes = 0;
    Text text = {0};
    for (int i = 0; i < it->storage_count; i++) {
        const Gaussian *g = it->storages[i].storage->gaussian;
        if (!g) continue;
        if (!first) first = g;
        elements += tensor_count(&g->mean);
        bytes += (int64_t)gaussian_bytes(g);
    }
    if (!first) return;
    for (int form = 0; form < GAUSSIAN_FORM_COUNT; form++)
        add_form(&text, it, (GaussianForm)form);
    printf("%-12s %s of the parameters: %s; %s bytes; of model %s\n", "posterior",
           text_grouped(it->arena, elements), text.data, text_grouped(it->arena, bytes),
           first->origin);
    text_free(&text);
}

void inspect_put_posterior(Arena *arena, Tree *entry, const Storage *storage) {
    const Gaussian *g = storage->gaussian;
    if (!g) return;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "form", gaussian_form_name(g->form));
    if (gaussian_samples(g) > 0) tree_put_int(arena, map, "samples", gaussian_samples(g));
    tree_put_string(arena, map, "dtype", dtype_name(g->mean.dtype));
    tree_put_int(arena, map, "bytes", (int64_t)gaussian_bytes(g));
    tree_put_string(arena, map, "model", g->origin);
    tree_append(arena, entry, "posterior", LOC_NONE, map);
}
