/* A model as one safetensors file: weights that every reader of safetensors finds, under
 * the names of the architecture's checkpoints where it is one of transformers, and in the
 * metadata what else the model is.
 *
 *     format                  "pt", as transformers wants it
 *     compress.version        "1"
 *     compress.ir             IR text of the graph (ir/irtext.h)
 *     compress.config         JSON: Model.config
 *     compress.provenance     JSON: Model.provenance
 *     compress.places         JSON: for every storage whose tensor has another name, or
 * is a slice of one, {tensor, part, parts} compress.asset.NAME     an asset that is text
 *     compress.hash           of the weights and of these texts */
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/assets.h"
#include "io/formats/format.h"
#include "io/formats/safetensors.h"
#include "io/formats/stock_tensors.h"
#include "ir/irtext.h"
#include "ir/storage.h"
#include "ir/verify.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VERSION "1"

#define KEY_VERSION    "compress.version"
#define KEY_IR         "compress.ir"
#define KEY_CONFIG     "compress.config"
#define KEY_PROVENANCE "compress.provenance"
#define KEY_PLACES     "compress.places"
#define KEY_ASSET      "compress.asset."
#define KEY_BYTES      "compress.bytes."
#define KEY_HASH       "compress.hash"

/* In its place while the weights are not yet read. */
#define NO_HASH "00000000000000000000000000000000"
_Static_assert(sizeof NO_HASH == HASH_TEXT_BYTES, "as long as a hash");

static void add_hash(Text *text, const Tree *value) {
    char hash[HASH_TEXT_BYTES];
    if (!value) return;
    bytes_hash(value->string, strlen(value->string), hash);
    text_add(text, "%s %s\n", value->key, hash);
}

/* Hash over the model's weights, its IR text and the other texts, whatever order a tool
 * has put them into. */
static void hash_file(char out[HASH_TEXT_BYTES], Model *model, const Tree *metadata) {
    static const char *const KEYS[] = {KEY_CONFIG, KEY_PROVENANCE, KEY_PLACES};
    Text text = {0}, key = {0};
    model_content_hash(model, out);
    text_add(&text, "%s\n", out);
    for (int i = 0; i < 3; i++) add_hash(&text, tree_get(metadata, KEYS[i]));
    for (int i = 0; i < 2 * model->asset_count; i++) {
        text_add(&key, "%s%s", i % 2 ? KEY_BYTES : KEY_ASSET, model->assets[i / 2].name);
        add_hash(&text, tree_get(metadata, key.data));
        text_free(&key);
    }
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

/* ---- writing ---- */

typedef struct SafetensorsWriter {
    Arena *arena;
    Model *model;
    NamedTensor *tensors;
    int count;
    Tree *metadata, *places;
    Diag *diag;
} SafetensorsWriter;

/* Says under which name a storage is found, and as which slice. */
static void add_place(SafetensorsWriter *w, const Storage *storage, const char *tensor,
                      int part, int parts, int64_t row) {
    if (parts == 1 && strcmp(storage->name, tensor) == 0) return;
    Tree *place = tree_put_map(w->arena, w->places, storage->name);
    tree_put_string(w->arena, place, "tensor", tensor);
    tree_put_int(w->arena, place, "part", part);
    tree_put_int(w->arena, place, "parts", parts);
    if (row >= 0) tree_put_int(w->arena, place, "row", row);
}

/* Adds a tensor of the checkpoint; its parts one by one, under the names that they have
 * in the graph of the architecture, where they are of several types. */
static Status add_stock(SafetensorsWriter *w, const StockTensor *tensor) {
    bool one_type = true;
    for (int p = 1; p < tensor->count; p++)
        one_type &= tensor->parts[p]->tensor.dtype == tensor->parts[0]->tensor.dtype;
    if (one_type) {
        NamedTensor *named = &w->tensors[w->count];
        TRY(stock_tensor_values(&named->tensor, tensor, w->diag));
        named->name = tensor->name;
        w->count++;
        for (int p = 0; p < tensor->count; p++)
            add_place(w, tensor->parts[p], tensor->name, p, tensor->count,
                      tensor->by_rows ? stock_tensor_row(tensor, p) : -1);
        return STATUS_OK;
    }
    for (int p = 0; p < tensor->count; p++) {
        w->tensors[w->count++] =
            (NamedTensor){tensor->built[p], tensor_retain(&tensor->parts[p]->tensor)};
        add_place(w, tensor->parts[p], tensor->built[p], 0, 1, -1);
    }
    return STATUS_OK;
}

/* All weights: as a checkpoint has them where the model is an architecture of
 * transformers, else storage by storage. */
static Status add_tensors(SafetensorsWriter *w) {
    const Graph *graph = w->model->graph;
    Diag *aside = diag_create();
    Stock stock = {0};
    Status status = STATUS_OK;
    w->tensors = ARENA_ARRAY(w->arena, NamedTensor, (size_t)graph->storage_count + 1);
    const bool matches =
        stock_match(&stock, w->arena, w->model, false, aside) == STATUS_OK;
    if (matches && stock.turns == 0) {
        StockTensor *tensors;
        const int count = stock_tensors(&tensors, w->arena, &stock);
        for (int i = 0; i < count && status == STATUS_OK; i++)
            status = add_stock(w, &tensors[i]);
    } else {
        for (int i = 0; i < graph->storage_count; i++)
            w->tensors[w->count++] = (NamedTensor){
                graph->storages[i]->name, tensor_retain(&graph->storages[i]->tensor)};
    }
    if (matches) stock_release(&stock);
    diag_destroy(aside);
    return status;
}

static void put_json(SafetensorsWriter *w, const char *key, const Tree *value) {
    Text text = {0};
    tree_print_json(&text, value, 0);
    tree_put_string(w->arena, w->metadata, key, text.data);
    text_free(&text);
}

static void put_asset(SafetensorsWriter *w, const ModelAsset *asset) {
    const char *text = arena_strndup(w->arena, asset->data, asset->length);
    const bool is_text = strlen(text) == asset->length && utf8_is_valid(text);
    Text key = {0}, digits = {0};
    text_add(&key, "%s%s", is_text ? KEY_ASSET : KEY_BYTES, asset->name);
    for (size_t i = 0; i < asset->length && !is_text; i++)
        text_add(&digits, "%02x", ((const unsigned char *)asset->data)[i]);
    tree_put_string(w->arena, w->metadata, key.data, is_text ? text : digits.data);
    text_free(&key);
    text_free(&digits);
}

static void put_texts(SafetensorsWriter *w) {
    const Model *model = w->model;
    Text ir = {0};
    tree_put_string(w->arena, w->metadata, "format", "pt");
    tree_put_string(w->arena, w->metadata, KEY_VERSION, VERSION);
    graph_print(&ir, model->graph);
    tree_put_string(w->arena, w->metadata, KEY_IR, ir.data);
    text_free(&ir);
    put_json(w, KEY_CONFIG, model->config);
    put_json(w, KEY_PROVENANCE, model->provenance);
    put_json(w, KEY_PLACES, w->places);
    for (int i = 0; i < model->asset_count; i++) put_asset(w, &model->assets[i]);
    tree_put_string(w->arena, w->metadata, KEY_HASH, NO_HASH);
}

/* The hash, and whether the weights are finite: writing has read them. */
static Status put_seal(void *self, Diag *diag) {
    SafetensorsWriter *w = self;
    char hash[HASH_TEXT_BYTES];
    TRY(graph_verify_weights(w->model->graph, diag));
    hash_file(hash, w->model, w->metadata);
    tree_put_string(w->arena, w->metadata, KEY_HASH, hash);
    return STATUS_OK;
}

static Status write_format(Model *model, const char *path, const WriteOptions *options,
                           Written *written, Diag *diag) {
    Arena *arena = arena_create();
    SafetensorsWriter w = {.arena = arena, .model = model, .diag = diag};
    struct stat info = {0};
    (void)options;
    w.metadata = tree_new(arena, TREE_MAP, LOC_NONE);
    w.places = tree_new(arena, TREE_MAP, LOC_NONE);
    const int known = graph_gaussian_count(model->graph);
    if (known > 0)
        diag_warn(diag, LOC_FILE(path), NULL,
                  "the posterior of %d weights is left out; an .h5 file keeps it", known);
    Status status = add_tensors(&w);
    if (status == STATUS_OK) {
        const SafetensorsSeal seal = {put_seal, &w};
        put_texts(&w);
        status =
            safetensors_write_sealed(path, w.tensors, w.count, w.metadata, &seal, diag);
    }
    if (status == STATUS_OK && stat(path, &info) == 0)
        *written = (Written){info.st_size, 1};
    for (int i = 0; i < w.count; i++) tensor_release(&w.tensors[i].tensor);
    arena_destroy(arena);
    return status;
}

/* ---- reading ---- */

typedef struct SafetensorsReader {
    const char *path;
    Arena *scratch;
    const Checkpoint *file;
    const Tree *places;
    Model *model;
    Diag *diag;
} SafetensorsReader;

#define FAULT(r, key, ...)                                                               \
    diag_fail((r)->diag, STATUS_FORMAT, LOC_FILE((r)->path), key, __VA_ARGS__)

/* A text of the metadata; all are strings (safetensors_read). */
static Status find_text(const SafetensorsReader *r, const char *key, const char **out) {
    const Tree *value = tree_get(r->file->metadata, key);
    *out = "";
    if (!value)
        return FAULT(r, "__metadata__", "expected a model, found no key '%s'", key);
    *out = value->string;
    return STATUS_OK;
}

static Status read_map(const SafetensorsReader *r, Arena *arena, const char *key,
                       Tree **out) {
    const char *text;
    TRY(find_text(r, key, &text));
    const char *place = arena_printf(r->model->arena, "%s:%s", r->path, key);
    TRY(json_parse(out, arena, place, text, strlen(text), r->diag));
    if ((*out)->kind != TREE_MAP)
        return FAULT(r, key, "expected a map, found %s", tree_kind_name((*out)->kind));
    return STATUS_OK;
}

static Status read_texts(SafetensorsReader *r) {
    Model *model = r->model;
    const char *version, *ir;
    Tree *places;
    TRY(find_text(r, KEY_VERSION, &version));
    if (strcmp(version, VERSION) != 0)
        return FAULT(r, KEY_VERSION, "expected version " VERSION ", found '%.20s'",
                     version);
    TRY(read_map(r, model->arena, KEY_CONFIG, &model->config));
    TRY(read_map(r, model->arena, KEY_PROVENANCE, &model->provenance));
    TRY(read_map(r, r->scratch, KEY_PLACES, &places));
    r->places = places;
    TRY(find_text(r, KEY_IR, &ir));
    Graph *graph = NULL;
    TRY(graph_parse(&graph, model->arena, model->graph->ops,
                    arena_printf(model->arena, "%s:" KEY_IR, r->path), ir, strlen(ir),
                    r->diag));
    model->graph = graph;
    return STATUS_OK;
}

/* Bytes of pairs of hexadecimal digits; false where there is anything else. */
static bool parse_digits(unsigned char *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        if (!isxdigit((unsigned char)pair[0]) || !isxdigit((unsigned char)pair[1]))
            return false;
        out[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return true;
}

static Status read_asset(const SafetensorsReader *r, const Tree *value) {
    const bool is_text = strncmp(value->key, KEY_ASSET, strlen(KEY_ASSET)) == 0;
    const size_t length = strlen(value->string);
    const char *prefix = is_text ? KEY_ASSET : KEY_BYTES;
    if (strncmp(value->key, prefix, strlen(prefix)) != 0) return STATUS_OK;
    const char *name = value->key + strlen(prefix);
    if (!asset_is_known(name)) return FAULT(r, value->key, "no such asset is known");
    if (is_text) {
        model_put_asset(r->model, name, value->string, length);
        return STATUS_OK;
    }
    unsigned char *bytes = ARENA_ARRAY(r->scratch, unsigned char, length / 2 + 1);
    if (length % 2 || !parse_digits(bytes, value->string, length / 2))
        return FAULT(r, value->key, "expected pairs of hexadecimal digits");
    model_put_asset(r->model, name, bytes, length / 2);
    return STATUS_OK;
}

/* Where a storage's values are. */
typedef struct SlicePlace {
    const char *tensor;
    int part, parts; /* equal slices of the last dimension */
    int64_t row;     /* the first of as many as the storage has; below 0: no such slice */
} SlicePlace;

/* Where a storage's tensor is; the storage's own name where nothing is said. */
static Status find_place(const SafetensorsReader *r, const char *storage,
                         SlicePlace *out) {
    const Tree *place = tree_get(r->places, storage);
    const Tree *name = tree_get(place, "tensor"), *part = tree_get(place, "part"),
               *parts = tree_get(place, "parts"), *row = tree_get(place, "row");
    *out = (SlicePlace){storage, 0, 1, -1};
    if (!place) return STATUS_OK;
    if (!name || name->kind != TREE_STRING || !part || part->kind != TREE_INT || !parts ||
        parts->kind != TREE_INT || part->integer < 0 || part->integer >= parts->integer ||
        parts->integer > SPLIT_MAX ||
        (row && (row->kind != TREE_INT || row->integer < 0)))
        return FAULT(r, KEY_PLACES,
                     "the place of '%s' is not {tensor, part, parts} or that and row",
                     storage);
    *out = (SlicePlace){name->string, (int)part->integer, (int)parts->integer,
                        row ? row->integer : -1};
    return STATUS_OK;
}

/* Whether a tensor has a slice with the shape of `own`. */
static bool is_slice(const Tensor *found, const SlicePlace *slice, const Tensor *own) {
    if (slice->row >= 0) {
        int64_t end;
        bool good = found->rank > 0 && found->rank == own->rank &&
                    !__builtin_add_overflow(slice->row, own->dim[0], &end) &&
                    end <= found->dim[0];
        for (int i = 1; i < found->rank && good; i++) good = found->dim[i] == own->dim[i];
        return good;
    }
    if (slice->parts > 1 &&
        (found->rank == 0 || found->dim[found->rank - 1] % slice->parts))
        return false;
    return tensor_count(found) / slice->parts == tensor_count(own) &&
           tensor_count(found) % slice->parts == 0;
}

/* Binds a storage, of which the graph has told type and shape. */
static Status bind_storage(const SafetensorsReader *r, Storage *storage) {
    const Tensor *own = &storage->tensor;
    SlicePlace slice;
    Tensor bound;
    TRY(find_place(r, storage->name, &slice));
    const Tensor *found = checkpoint_find(r->file, slice.tensor);
    if (!found)
        return FAULT(r, storage->name, "the file lacks tensor '%s'", slice.tensor);
    if (found->dtype != own->dtype || !is_slice(found, &slice, own)) {
        char have[SHAPE_TEXT_BYTES], want[SHAPE_TEXT_BYTES];
        return FAULT(
            r, slice.tensor, "expected %s%s, %d of which make up the tensor, found %s%s",
            dtype_name(own->dtype), shape_text(want, own->rank, own->dim), slice.parts,
            dtype_name(found->dtype), shape_text(have, found->rank, found->dim));
    }
    if (slice.row >= 0)
        bound = checkpoint_rows(found, slice.row, own->dim[0]);
    else if (slice.parts > 1)
        TRY(checkpoint_slice(&bound, found, slice.part, slice.parts, r->diag));
    else
        bound = tensor_retain(found);
    bound.rank = own->rank;
    memcpy(bound.dim, own->dim, sizeof bound.dim);
    storage_set_values(storage, bound);
    return STATUS_OK;
}

static Status read_model(SafetensorsReader *r, bool check) {
    const char *wanted;
    char found[HASH_TEXT_BYTES];
    if (!r->file->metadata) return FAULT(r, "__metadata__", "expected a model's texts");
    TRY(read_texts(r));
    for (int i = 0; i < r->model->graph->storage_count; i++)
        TRY(bind_storage(r, r->model->graph->storages[i]));
    for (const Tree *value = r->file->metadata->first; value; value = value->next)
        TRY(read_asset(r, value));
    TRY(find_text(r, KEY_HASH, &wanted));
    if (!check) return STATUS_OK;
    hash_file(found, r->model, r->file->metadata);
    if (strcmp(found, wanted) != 0)
        return FAULT(r, KEY_HASH, "weights or texts are not those that were written");
    return STATUS_OK;
}

static Status read_format(Model **out, const char *path, const HfOptions *options,
                          const OpTable *ops, bool check, Diag *diag) {
    Checkpoint *file;
    struct stat info = {0};
    (void)options;
    TRY(safetensors_read(&file, path, diag));
    SafetensorsReader r = {.path = path,
                           .scratch = arena_create(),
                           .file = file,
                           .model = model_create(ops),
                           .diag = diag};
    const Status status = read_model(&r, check);
    if (stat(path, &info) == 0) r.model->file_bytes = info.st_size;
    checkpoint_destroy(file);
    arena_destroy(r.scratch);
    if (status == STATUS_OK)
        *out = r.model;
    else
        model_destroy(r.model);
    return status;
}

/* A header that says it is one of ours; other safetensors files are weights alone. */
static bool probe(const char *path) {
    Diag *aside = diag_create();
    Buf *map;
    bool found = false;
    if (path_is_file(path) && file_map(&map, path, aside) == STATUS_OK) {
        const size_t bytes = buf_bytes(map);
        const unsigned char *data = buf_data(map);
        uint64_t header = 0;
        for (int i = 7; bytes > 8 && i >= 0; i--) header = header << 8 | data[i];
        found = header > 0 && header <= bytes - 8 && data[8] == '{' &&
                memmem(data + 8, (size_t)header, KEY_VERSION, strlen(KEY_VERSION));
        buf_release(map);
    }
    diag_destroy(aside);
    return found;
}

/* Files of this format have no types for scales beside numbers, and nobody who reads them
 * by name would know what to do with either. */
static Status check_types(const Model *model, const WriteOptions *options, Diag *diag) {
    const bool keep = !options || !options->dtype || strcmp(options->dtype, "keep") == 0;
    for (int i = 0; keep && i < model->graph->storage_count; i++) {
        const Storage *storage = model->graph->storages[i];
        if (!dtype_is_quantised(storage->tensor.dtype)) continue;
        diag_fail(diag, STATUS_MODEL, LOC_NONE, storage->name,
                  "expected weights of a type that safetensors files have, found %s",
                  dtype_name(storage->tensor.dtype));
        diag_hint(diag, "`dtype: f32` at the output makes them real numbers; an .h5 file "
                        "holds them as they are");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

const ModelFormat model_format_safetensors = {
    .name = "safetensors",
    .what = "a model in a safetensors file",
    .ending = ".safetensors",
    .summary = "every model of real weights in one file; other tools find them by name",
    .probe = probe,
    .read = read_format,
    .hashes = "one hash over the weights, the graph and all other texts",
    .check = check_types,
    .pieces = stock_tensors_whole,
    .verifies = true,
    .write = write_format};
