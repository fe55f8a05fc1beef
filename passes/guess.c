/* Guessed shapes: see guess.h. */
#include "passes/guess.h"

#include "ir/storage.h"

#include <string.h>

/* One weight, by its name: storages come and go. */
struct GuessedShape {
    const char *name;
    Tensor shape;
    GuessedShape *next;
};

static GuessedShape **find_shape(const PassContext *ctx, const char *name) {
    GuessedShape **at = ctx->guesses;
    while (at && *at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
    return at;
}

static Tensor shape_of(const Storage *storage) {
    const Tensor *tensor = storage_tensor(storage);
    return tensor_shape_like(tensor, tensor->rank, tensor->dim);
}

void guess_note(PassContext *ctx, const Storage *storage) {
    GuessedShape **at = find_shape(ctx, storage->name);
    if (!at) return;
    if (!*at) {
        *at = ARENA_NEW(ctx->arena, GuessedShape);
        (*at)->name = arena_strdup(ctx->arena, storage->name);
    }
    (*at)->shape = shape_of(storage);
}

void guess_settle(PassContext *ctx, const Storage *storage) {
    GuessedShape **at = find_shape(ctx, storage->name);
    if (at && *at) *at = (*at)->next;
}

bool guess_has(const PassContext *ctx, const Storage *storage) {
    GuessedShape **at = find_shape(ctx, storage->name);
    return at && *at;
}

bool guess_any(const PassContext *ctx) {
    return ctx->guesses && *ctx->guesses;
}

/* Whether the weights still are what they were: all there, of their shapes, and the
 * matrices of their types, or all of another one whose bytes grow with the units. */
static bool are_as_noted(const PassContext *ctx, const Graph *graph) {
    int matrices = 0, turned = 0;
    for (GuessedShape *one = *ctx->guesses; one; one = one->next) {
        const Storage *storage = graph_storage(graph, one->name);
        if (!storage) return false;
        const Tensor now = shape_of(storage);
        if (now.rank != one->shape.rank ||
            memcmp(now.dim, one->shape.dim, (size_t)now.rank * sizeof *now.dim) != 0)
            return false;
        const bool other = now.dtype != one->shape.dtype;
        if (other && now.dtype == DTYPE_Q4) return false;
        matrices += now.rank == 2;
        turned += now.rank == 2 && other;
        one->shape = now;
    }
    return turned == 0 || turned == matrices;
}

void guess_follow(PassContext *ctx, const Graph *graph, Diag *diag) {
    if (ctx->guessed || !guess_any(ctx) || are_as_noted(ctx, graph)) return;
    ctx->guessed = true;
    diag_warn(diag, ctx->source.at, ctx->source.key,
              "planned as if all layers had kept equally many heads or units, which only "
              "the run knows; sizes and FLOPs after this step are approximate");
}
