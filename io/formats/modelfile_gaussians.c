/* Gaussians in the native model file: see modelfile_gaussians.h. */
#include "io/formats/modelfile_gaussians.h"

#include <string.h>

const char *modelfile_part_link(Arena *arena, const char *storage, const char *part) {
    return arena_printf(arena, "%s:%s", modelfile_link(arena, storage), part);
}

/* Hash over the hashes in an index of the IR and of every storage, and the origins of the
 * Gaussians: what belongs together in a file. */
static void content_hash(const Tree *index, const Tree *priors,
                         char out[HASH_TEXT_BYTES]) {
    Text text = {0};
    const char *ir = tree_string(tree_get(index, "texts"), "ir");
    const Tree *rows = tree_get(index, "storages");
    text_add(&text, "%s\n", ir ? ir : "");
    for (const Tree *row = rows ? rows->first : NULL; row; row = row->next) {
        const char *name = tree_string(row, "name"), *hash = tree_string(row, "hash");
        text_add(&text, "%s ", hash ? hash : "");
        text_quoted(&text, name ? name : "");
        text_add(&text, "\n");
    }
    for (const Tree *row = priors->first; row; row = row->next) {
        const char *origin = tree_string(row, "origin");
        text_add(&text, "%s\n", origin ? origin : "");
    }
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

/* ---- writing ---- */

static Tree *gaussian_row(Arena *arena, const Storage *storage) {
    const Gaussian *g = storage->gaussian;
    Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *hashes = tree_new(arena, TREE_MAP, LOC_NONE);
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    for (int i = 0; i < count; i++) {
        char hash[HASH_TEXT_BYTES];
        tensor_hash(part[i].tensor, hash);
        tree_put_string(arena, hashes, part[i].name, hash);
    }
    tree_put_string(arena, row, "name", storage->name);
    tree_put_string(arena, row, "form", gaussian_form_name(g->form));
    tree_put_string(arena, row, "dtype", dtype_name(g->mean.dtype));
    tree_put_int(arena, row, "samples", gaussian_samples(g));
    tree_put_string(arena, row, "origin", g->origin);
    tree_append(arena, row, "hashes", LOC_NONE, hashes);
    return row;
}

void modelfile_put_gaussians(Tree *index, Arena *arena, const Storage *const *sorted,
                             int count) {
    Tree *rows = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < count; i++)
        if (sorted[i]->gaussian)
            tree_append(arena, rows, NULL, LOC_NONE, gaussian_row(arena, sorted[i]));
    if (!rows->first) return;
    char hash[HASH_TEXT_BYTES];
    content_hash(index, rows, hash);
    Tree *priors = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, priors, "model", hash);
    tree_append(arena, priors, "storages", LOC_NONE, rows);
    tree_append(arena, index, "priors", LOC_NONE, priors);
}

/* ---- reading ---- */

static bool is_hash(const char *text) {
    return text && strlen(text) == HASH_TEXT_BYTES - 1 &&
           strspn(text, "0123456789abcdef") == HASH_TEXT_BYTES - 1;
}

/* A Gaussian with shapes as its row says, checked against its storage. */
static Status row_gaussian(const GaussianReader *r, const Tree *row, Storage **out) {
    const char *name = tree_string(row, "name"), *form = tree_string(row, "form");
    const char *dtype = tree_string(row, "dtype"), *origin = tree_string(row, "origin");
    const Tree *samples = tree_get(row, "samples");
    DType type = DTYPE_F32;
    if (!name || !form || !dtype || !is_hash(origin) || !samples ||
        samples->kind != TREE_INT || !dtype_parse(dtype, &type) ||
        gaussian_form_parse(form) == GAUSSIAN_FORM_COUNT)
        return DAMAGED(r, "a row of the priors is not {name, form, dtype, samples, "
                          "origin, hashes}");
    Storage *storage = graph_storage(r->model->graph, name);
    if (!storage || storage->gaussian)
        return DAMAGED(r, "the prior of storage '%s' is not %s", name,
                       storage ? "there once" : "of the graph");
    const GaussianForm which = gaussian_form_parse(form);
    const int64_t most = which == GAUSSIAN_LOW_RANK ? GAUSSIAN_SAMPLES_MAX : 0;
    if (samples->integer < (most > 0) || samples->integer > most ||
        (which == GAUSSIAN_KRON && storage->tensor.rank != 2))
        return DAMAGED(r, "the prior of storage '%s' has an impossible shape", name);
    Gaussian *g = gaussian_create(r->model->arena, which, type, &storage->tensor,
                                  samples->integer, origin);
    if (!gaussian_fits(g, &storage->tensor))
        return DAMAGED(r, "the prior of storage '%s' does not fit it", name);
    storage->gaussian = g;
    *out = storage;
    return STATUS_OK;
}

static Status part_bind(const GaussianReader *r, const Tree *row, const char *storage,
                        const GaussianPart *part) {
    Tensor *tensor = part->tensor;
    const char *link = modelfile_part_link(r->scratch, storage, part->name);
    const Hdf5Set *set = sets_find(r->table, MODELFILE_PRIORS, link);
    const char *wanted = tree_string(tree_get(row, "hashes"), part->name);
    if (!set || !wanted)
        return DAMAGED(r, "the prior of storage '%s' has no %s", storage, part->name);
    if (set->dtype != tensor->dtype || set->rank != tensor->rank ||
        memcmp(set->dim, tensor->dim, (size_t)set->rank * sizeof set->dim[0]) != 0)
        return DAMAGED(r, "the prior of storage '%s': %s has another shape or type",
                       storage, part->name);
    tensor->buf = buf_retain((Buf *)(uintptr_t)r->map);
    tensor->offset = set->offset;
    char hash[HASH_TEXT_BYTES];
    if (!r->check_hashes) return STATUS_OK;
    tensor_hash(tensor, hash);
    if (strcmp(hash, wanted) != 0)
        return DAMAGED(r, "the prior of storage '%s': %s does not match its hash",
                       storage, part->name);
    return STATUS_OK;
}

/* Reads one row; `sets` counts the data sets it took. */
static Status row_read(const GaussianReader *r, const Tree *row, int *sets) {
    Storage *storage = NULL;
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    TRY(row_gaussian(r, row, &storage));
    const int count = gaussian_parts(storage->gaussian, part);
    for (int i = 0; i < count; i++) TRY(part_bind(r, row, storage->name, &part[i]));
    *sets += count;
    if (!r->check_hashes) return STATUS_OK;
    const Status status =
        gaussian_check(storage->gaussian, storage->name, STATUS_FORMAT, r->diag);
    if (status != STATUS_OK) diag_place(r->diag, LOC_FILE(r->path), storage->name);
    return status;
}

Status modelfile_read_gaussians(const GaussianReader *r) {
    const Tree *priors = tree_get(r->index, "priors");
    const Tree *rows = tree_get(priors, "storages");
    int found = 0, used = 0;
    for (int i = 0; i < r->table->count; i++) {
        const char *group = r->table->sets[i].group;
        found += group && strcmp(group, MODELFILE_PRIORS) == 0;
    }
    if (!priors && found == 0) return STATUS_OK;
    const char *model = tree_string(priors, "model");
    if (!model || !rows || rows->kind != TREE_LIST)
        return DAMAGED(r, "the index has no list of priors");
    char hash[HASH_TEXT_BYTES];
    content_hash(r->index, rows, hash);
    if (strcmp(model, hash) != 0)
        return DAMAGED(r,
                       "the priors belong to another model: expected those of %s, "
                       "found those of %.40s",
                       hash, model);
    for (const Tree *row = rows->first; row; row = row->next)
        TRY(row_read(r, row, &used));
    if (used != found)
        return DAMAGED(r, "the index has %d parts of priors, the file %d", used, found);
    return STATUS_OK;
}
