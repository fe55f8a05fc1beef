/* Native model file, reading: checks texts, index, graph and data sets against each
 * other and binds the weights as views of the mapped file. */
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/assets.h"
#include "io/formats/modelfile.h"
#include "io/formats/modelfile_gaussians.h"
#include "io/formats/modelfile_quantised.h"
#include "ir/irtext.h"
#include "ir/mapped.h"

#include <string.h>

/* Most damaged storages that are named. */
#define DAMAGED_SHOWN 10

/* State of one reading. */
typedef struct ModelReader {
    const char *path;
    Arena *scratch;
    Buf *map;
    SetTable table;
    Tree *index;
    Model *model;
    Diag *diag;
} ModelReader;

bool modelfile_probe(const char *path) {
    char head[8];
    return file_start(head, sizeof head, path) == sizeof head &&
           memcmp(head, HDF5_SIGNATURE, sizeof head) == 0;
}

/* --- texts --- */

static const char *set_data(const ModelReader *r, const Hdf5Set *set) {
    return (const char *)buf_data(r->map) + set->offset;
}

static Status text_find(ModelReader *r, const char *name, const Hdf5Set **out) {
    *out = sets_find(&r->table, NULL, name);
    if (!*out) return DAMAGED(r, "the file has no '%s'", name);
    if ((*out)->dtype != DTYPE_U8 || (*out)->rank != 1)
        return DAMAGED(r, "'%s' is not a list of bytes", name);
    return STATUS_OK;
}

/* Finds a text and compares its hash with the index. */
static Status text_checked(ModelReader *r, const char *name, const Hdf5Set **out) {
    char hash[HASH_TEXT_BYTES];
    TRY(text_find(r, name, out));
    const Tree *wanted = tree_get(tree_get(r->index, "texts"), name);
    bytes_hash(set_data(r, *out), (*out)->bytes, hash);
    if (!wanted || wanted->kind != TREE_STRING || strcmp(wanted->string, hash) != 0)
        return DAMAGED(r, "'%s' does not match its hash in the index", name);
    return STATUS_OK;
}

static const char *place_of(ModelReader *r, const char *name) {
    return arena_printf(r->model->arena, "%s:/%s", r->path, name);
}

static Status map_parse(ModelReader *r, Arena *arena, const char *name,
                        const Hdf5Set *set, Tree **out) {
    TRY(json_parse(out, arena, place_of(r, name), set_data(r, set), set->bytes, r->diag));
    if ((*out)->kind != TREE_MAP) return DAMAGED(r, "'%s' is not a JSON object", name);
    return STATUS_OK;
}

static Status read_version(ModelReader *r) {
    const Hdf5Set *set = sets_find(&r->table, NULL, "format");
    int32_t version;
    if (!set || set->dtype != DTYPE_I32 || set->rank != 0)
        return DAMAGED(r, "an HDF5 file, but not a model (no 'format')");
    memcpy(&version, set_data(r, set), sizeof version);
    if (version != MODELFILE_VERSION)
        return DAMAGED(r, "expected format version %d, found %d", MODELFILE_VERSION,
                       version);
    return STATUS_OK;
}

static Status read_texts(ModelReader *r) {
    const Hdf5Set *set;
    Model *model = r->model;
    TRY(text_find(r, "index", &set));
    TRY(map_parse(r, r->scratch, "index", set, &r->index));
    const Tree *version = tree_get(r->index, "format");
    if (!version || version->kind != TREE_INT || version->integer != MODELFILE_VERSION)
        return DAMAGED(r, "the index is not of format version %d", MODELFILE_VERSION);
    TRY(text_checked(r, "config", &set));
    TRY(map_parse(r, model->arena, "config", set, &model->config));
    if (sets_find(&r->table, NULL, MODELFILE_ORIGINAL)) {
        TRY(text_checked(r, MODELFILE_ORIGINAL, &set));
        TRY(map_parse(r, model->arena, MODELFILE_ORIGINAL, set, &model->config));
    }
    TRY(text_checked(r, "provenance", &set));
    TRY(map_parse(r, model->arena, "provenance", set, &model->provenance));
    TRY(text_checked(r, "ir", &set));
    Graph *graph = NULL;
    TRY(graph_parse(&graph, model->arena, model->graph->ops, place_of(r, "ir"),
                    set_data(r, set), set->bytes, r->diag));
    model->graph = graph;
    return STATUS_OK;
}

/* --- weights --- */

/* One row of the index. */
typedef struct Row {
    const char *name, *hash;
    Tensor form; /* type and shape, no data */
} Row;

static Status row_read(ModelReader *r, const Tree *tree, Row *row) {
    const Tree *shape = tree_get(tree, "shape");
    const char *dtype = tree_string(tree, "dtype");
    *row = (Row){.name = tree_string(tree, "name"), .hash = tree_string(tree, "hash")};
    if (!row->name || !row->hash || !dtype || !tensor_form_parse(dtype, &row->form) ||
        !shape || shape->kind != TREE_LIST || shape->count > RANK_MAX)
        return DAMAGED(r, "a row of the index is not {name, dtype, shape, hash}");
    for (const Tree *dim = shape->first; dim; dim = dim->next) {
        if (dim->kind != TREE_INT || dim->integer < 0)
            return DAMAGED(r, "storage '%s': a dimension in the index is not a size",
                           row->name);
        row->form.dim[row->form.rank++] = dim->integer;
    }
    row->form = tensor_shape_like(&row->form, row->form.rank, row->form.dim);
    return STATUS_OK;
}

static Status bind_quantised(ModelReader *r, Storage *storage, const Row *row,
                             const char *link) {
    if (!tensor_same_form(&storage->tensor, &row->form))
        return DAMAGED(r, "storage '%s': graph and index differ in type or shape",
                       row->name);
    return modelfile_read_quantised(&storage->tensor, r->path, row->name, &r->table, link,
                                    r->map, r->diag);
}

static Status row_bind(ModelReader *r, const Row *row) {
    Storage *storage = graph_storage(r->model->graph, row->name);
    const char *link = modelfile_link(r->scratch, row->name);
    const Hdf5Set *set = sets_find(&r->table, MODELFILE_WEIGHTS, link);
    if (!storage || !set || storage->tensor.buf)
        return DAMAGED(r, "storage '%s' of the index is not %s", row->name,
                       !storage ? "in the graph"
                       : !set   ? "in the file"
                                : "there once");
    const Tensor *form = &row->form;
    if (dtype_is_quantised(form->dtype)) return bind_quantised(r, storage, row, link);
    DType stored = form->dtype == DTYPE_BOOL ? DTYPE_U8 : form->dtype;
    if (set->dtype != stored || storage->tensor.dtype != form->dtype)
        return DAMAGED(r,
                       "storage '%s': graph, index and data differ in type (%s, %s, %s)",
                       row->name, dtype_name(storage->tensor.dtype),
                       dtype_name(form->dtype), dtype_name(set->dtype));
    if (form->rank != set->rank || !tensor_same_shape(form, &storage->tensor) ||
        memcmp(form->dim, set->dim, (size_t)form->rank * sizeof *form->dim) != 0)
        return DAMAGED(r, "storage '%s': graph, index and data differ in shape",
                       row->name);
    storage->tensor.buf = buf_retain(r->map);
    storage->tensor.offset = set->offset;
    return STATUS_OK;
}

/* Whether the data of a storage is what was written. Whether it is finite is found in the
 * same go, for who asks later. */
static bool row_holds(const ModelReader *r, const Row *row) {
    const Tensor *tensor = &graph_storage(r->model->graph, row->name)->tensor;
    char hash[HASH_TEXT_BYTES];
    tensor_check_finite(tensor);
    tensor_hash(tensor, hash);
    return strcmp(hash, row->hash) == 0;
}

static int sets_of_group(const ModelReader *r, const char *group) {
    int count = 0;
    for (int i = 0; i < r->table.count; i++)
        count += r->table.sets[i].group && strcmp(r->table.sets[i].group, group) == 0;
    return count;
}

/* Storages, rows and data sets correspond one to one: the counts are equal, and every
 * row takes a storage that no row took before. All whose data is damaged are told. */
static Status read_weights(ModelReader *r, bool check_hashes) {
    const Tree *rows = tree_get(r->index, "storages");
    const int found = sets_of_group(r, MODELFILE_WEIGHTS);
    int others = r->table.count - found - sets_of_group(r, MODELFILE_PRIORS) -
                 sets_of_group(r, MODELFILE_ASSETS);
    for (int i = 0; i < r->model->graph->storage_count; i++) {
        const Tensor *tensor = &r->model->graph->storages[i]->tensor;
        others -= dtype_is_quantised(tensor->dtype); /* scales */
        others -= tensor->zeros;
    }
    others -= sets_find(&r->table, NULL, MODELFILE_ORIGINAL) != NULL;
    if (others != MODELFILE_ROOT_SETS)
        return DAMAGED(r, "the file holds more than a model");
    if (!rows || rows->kind != TREE_LIST)
        return DAMAGED(r, "the index has no list of storages");
    int wanted = r->model->graph->storage_count;
    if (rows->count != wanted || found != wanted)
        return DAMAGED(r, "the graph has %d storages, the index %d, the file %d", wanted,
                       rows->count, found);
    int damaged = 0;
    for (const Tree *tree = rows->first; tree; tree = tree->next) {
        Row row;
        TRY(row_read(r, tree, &row));
        TRY(row_bind(r, &row));
        if (check_hashes && !row_holds(r, &row) && ++damaged <= DAMAGED_SHOWN)
            DAMAGED(r, "storage '%s': its data does not match its hash", row.name);
    }
    if (damaged > DAMAGED_SHOWN)
        diag_note(r->diag, "and %d storages more", damaged - DAMAGED_SHOWN);
    return damaged ? STATUS_FORMAT : STATUS_OK;
}

/* Assets are few and small: they are copied, and their hashes always compared. */
static Status read_assets(ModelReader *r) {
    const Tree *hashes = tree_get(r->index, MODELFILE_ASSETS);
    int found = 0;
    if (hashes && hashes->kind != TREE_MAP)
        return DAMAGED(r, "the index has no map of assets");
    for (int i = 0; i < r->table.count; i++) {
        const Hdf5Set *set = &r->table.sets[i];
        if (!set->group || strcmp(set->group, MODELFILE_ASSETS) != 0) continue;
        const Tree *wanted = tree_get(hashes, set->name);
        char hash[HASH_TEXT_BYTES];
        if (!asset_is_known(set->name) || set->dtype != DTYPE_U8 || set->rank != 1)
            return DAMAGED(r, "'%.80s' is not an asset", set->name);
        bytes_hash(set_data(r, set), set->bytes, hash);
        if (!wanted || wanted->kind != TREE_STRING || strcmp(wanted->string, hash) != 0)
            return DAMAGED(r, "asset '%s' does not match its hash in the index",
                           set->name);
        model_put_asset(r->model, set->name, set_data(r, set), set->bytes);
        found++;
    }
    if (hashes && hashes->count != found)
        return DAMAGED(r, "the index has %d assets, the file %d", hashes->count, found);
    return STATUS_OK;
}

static Status reader_run(ModelReader *r, bool check_hashes) {
    TRY(modelfile_sets(&r->table, r->scratch, r->path, r->map, r->diag));
    TRY(read_version(r));
    TRY(read_texts(r));
    TRY(read_weights(r, check_hashes));
    TRY(read_assets(r));
    r->model->file_bytes = (int64_t)buf_bytes(r->map);
    return modelfile_read_gaussians(&(GaussianReader){.path = r->path,
                                                      .scratch = r->scratch,
                                                      .map = r->map,
                                                      .table = &r->table,
                                                      .index = r->index,
                                                      .model = r->model,
                                                      .check_hashes = check_hashes,
                                                      .diag = r->diag});
}

Status modelfile_read(Model **out, const char *path, const OpTable *ops,
                      bool check_hashes, Diag *diag) {
    ModelReader r = {.path = path, .diag = diag};
    *out = NULL;
    TRY(file_map(&r.map, path, diag));
    r.scratch = arena_create();
    r.model = model_create(ops);
    Status status = reader_run(&r, check_hashes);
    buf_release(r.map);
    arena_destroy(r.scratch);
    if (status == STATUS_OK)
        *out = r.model;
    else
        model_destroy(r.model);
    return status;
}
