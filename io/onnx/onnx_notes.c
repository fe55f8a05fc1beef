/* Notes of ONNX files: see onnx_notes.h. */
#include "io/onnx/onnx_notes.h"

#include "io/files/json.h"
#include "io/onnx/onnx_form.h"
#include "ir/cast.h"
#include "ir/irtext.h"
#include "ir/name_map.h"
#include "ir/storage.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "1"

#define KEY_VERSION    "compress.version"
#define KEY_WEIGHTS    "compress.weights"
#define KEY_IR         "compress.ir"
#define KEY_CONFIG     "compress.config"
#define KEY_PROVENANCE "compress.provenance"
#define KEY_HASH       "compress.hash"

enum { NOTES_MAX = 6 };

static const char *const FORMS[ONNX_FORMS] = {
    [ONNX_AS_IT_IS] = "as it is", [ONNX_TRANSPOSED] = "transposed",
    [ONNX_GATES] = "gates",       [ONNX_BLOCKS] = "blocks",
    [ONNX_SCALES] = "scales",     [ONNX_ZEROS] = "zeros"};

/* ---- the hash ---- */

/* Whether an initialiser is a constant of the graph: no more than shapes, tables of
 * windows and the like, never a weight, which all have names of the model. */
static bool is_constant(const OnnxTensor *tensor) {
    return tensor->name && tensor->has_raw_data &&
           (strncmp(tensor->name, "constant.", 9) == 0 ||
            strncmp(tensor->name, "scalar.", 7) == 0);
}

/* Hash of a graph but for its weights' numbers: nodes, inputs and outputs as they are
 * packed, names, types and shapes of initialisers, and the numbers of constants. */
static void hash_graph(const OnnxGraph *graph, char out[HASH_TEXT_BYTES]) {
    OnnxGraph bare = *graph;
    Text text = {0};
    bare.n_initializer = 0;
    const size_t bytes = onnx__graph_proto__get_packed_size(&bare);
    uint8_t *packed = memory_alloc(bytes, 1);
    onnx__graph_proto__pack(&bare, packed);
    text_bytes(&text, (const char *)packed, bytes);
    free(packed);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const OnnxTensor *tensor = graph->initializer[i];
        text_add(&text, "%s %d", tensor->name ? tensor->name : "",
                 (int)tensor->data_type);
        for (size_t d = 0; d < tensor->n_dims; d++)
            text_add(&text, " %lld", (long long)tensor->dims[d]);
        text_add(&text, "\n");
        if (is_constant(tensor))
            text_bytes(&text, (const char *)tensor->raw_data.data, tensor->raw_data.len);
    }
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

/* Whether nothing that a graph gives depends on a storage: a bias before a softmax adds
 * the same to all keys. Such numbers stand in the notes: the file has no use for them. */
static bool is_unseen(const Graph *graph, const Storage *storage) {
    bool used = false;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++) {
            if (!node->in[i] || node->in[i]->storage != storage) continue;
            if (i != op_operand_index(node->op, "mix_before_bias")) return false;
            used = true;
        }
    return used && dtype_is_real(storage->tensor.dtype);
}

/* ---- writing ---- */

static void put_note(OnnxModel *file, Arena *arena, const char *key, const char *value) {
    OnnxEntry *entry = ARENA_NEW(arena, OnnxEntry);
    *entry = (OnnxEntry)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    entry->key = arena_strdup(arena, key);
    entry->value = arena_strdup(arena, value);
    file->metadata_props[file->n_metadata_props++] = entry;
}

static void put_json(OnnxModel *file, Arena *arena, const char *key, const Tree *value) {
    Text text = {0};
    tree_print_json(&text, value, 0);
    put_note(file, arena, key, text.data);
    text_free(&text);
}

/* The initialiser of a storage's numbers (`scales` and `zeros`: of these), NULL when the
 * file lacks it. */
static const OnnxWeight *find_weight(const OnnxBuild *b, const Storage *storage,
                                     OnnxForm what) {
    for (int i = 0; i < b->weights.count; i++) {
        const OnnxWeight *weight = b->weights.items[i];
        const bool other = weight->form == ONNX_SCALES || weight->form == ONNX_ZEROS;
        if (weight->storage == storage &&
            (other ? weight->form == what : what < ONNX_SCALES))
            return weight;
    }
    return NULL;
}

/* Where a storage's numbers are, unless they are just as a reader expects them. */
static void put_place(Tree *weights, OnnxBuild *b, const Storage *storage,
                      const OnnxWeight *weight) {
    const bool few = dtype_is_quantised(storage->tensor.dtype);
    if (!few && strcmp(weight->tensor->name, storage->name) == 0) return;
    Tree *place = tree_put_map(b->arena, weights, storage->name);
    tree_put_string(b->arena, place, "tensor", weight->tensor->name);
    tree_put_string(b->arena, place, "form", FORMS[weight->form]);
    for (OnnxForm form = ONNX_SCALES; few && form <= ONNX_ZEROS; form++) {
        const OnnxWeight *more = find_weight(b, storage, form);
        if (more) tree_put_string(b->arena, place, FORMS[form], more->tensor->name);
    }
}

static Status put_values(Tree *weights, Arena *arena, const Storage *storage,
                         Diag *diag) {
    Tensor values;
    TRY(tensor_to_f32(&values, &storage->tensor, diag));
    const float *x = tensor_data(&values);
    Tree *place = tree_put_map(arena, weights, storage->name);
    Tree *list = tree_put_list(arena, place, "values");
    for (int64_t i = 0; i < tensor_count(&values); i++) tree_add_real(arena, list, x[i]);
    tensor_release(&values);
    return STATUS_OK;
}

/* Warns of a storage that the file lacks, and so has no notes: of a part that no result
 * needs, the encoder of a translator without cross-attention. Exits are left out as
 * asked.
 */
static void warn_of_missing(const Graph *graph, const Storage *storage, Diag *diag) {
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->storage == storage && node->stack &&
                strcmp(node->stack, STACK_EXITS) == 0)
                return;
    diag_warn(diag, LOC_NONE, NULL,
              "the ONNX file has no \"%s\", which its results do not depend on: it reads "
              "back as what it computes, without history",
              storage->name);
}

Status onnx_notes_put(OnnxModel *file, OnnxBuild *b, const Model *model, OnnxPart part,
                      Diag *diag) {
    Graph *graph = model->graph;
    Tree *weights = tree_new(b->arena, TREE_MAP, LOC_NONE);
    Text ir = {0};
    char hash[HASH_TEXT_BYTES];
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        const OnnxWeight *weight = find_weight(b, storage, ONNX_AS_IT_IS);
        if (weight)
            put_place(weights, b, storage, weight);
        else if (is_unseen(graph, storage))
            TRY(put_values(weights, b->arena, storage, diag));
        else if (part == ONNX_WHOLE) {
            warn_of_missing(graph, storage, diag);
            return STATUS_OK;
        }
    }
    file->metadata_props = ARENA_ARRAY(b->arena, OnnxEntry *, NOTES_MAX);
    put_note(file, b->arena, KEY_VERSION, VERSION);
    put_json(file, b->arena, KEY_WEIGHTS, weights);
    if (part != ONNX_ENCODER) {
        graph_print(&ir, graph);
        put_note(file, b->arena, KEY_IR, ir.data);
        text_free(&ir);
        put_json(file, b->arena, KEY_CONFIG, model->config);
        put_json(file, b->arena, KEY_PROVENANCE, model->provenance);
    }
    hash_graph(file->graph, hash);
    put_note(file, b->arena, KEY_HASH, hash);
    return STATUS_OK;
}

/* ---- reading ---- */

typedef struct NotesReader {
    const Net *net;
    Model *model;
    Arena *scratch;
    NameMap names;    /* of initialisers, to OnnxTensor */
    Tree *weights[2]; /* of the file, and of the encoder's where there are two */
    Diag *diag;       /* not shown: without notes the graph is read */
} NotesReader;

static const char *find_note(const OnnxModel *file, const char *key) {
    for (size_t i = 0; i < file->n_metadata_props; i++) {
        const OnnxEntry *entry = file->metadata_props[i];
        if (entry->key && entry->value && strcmp(entry->key, key) == 0)
            return entry->value;
    }
    return NULL;
}

static bool read_map(const NotesReader *r, const OnnxModel *file, Arena *arena,
                     const char *key, Tree **out) {
    const char *text = find_note(file, key);
    return text &&
           json_parse(out, arena, key, text, strlen(text), r->diag) == STATUS_OK &&
           (*out)->kind == TREE_MAP;
}

/* Whether the notes are of this version and of the graph that stands beside them. */
static bool are_of_graph(const OnnxModel *file) {
    const char *version = find_note(file, KEY_VERSION), *hash = find_note(file, KEY_HASH);
    char found[HASH_TEXT_BYTES];
    if (!version || !hash || strcmp(version, VERSION) != 0) return false;
    hash_graph(file->graph, found);
    return strcmp(hash, found) == 0;
}

/* What the notes say of a storage; NULL when they say nothing. */
static const Tree *find_place(const NotesReader *r, const Storage *storage) {
    const Tree *place = tree_get(r->weights[0], storage->name);
    return place ? place : tree_get(r->weights[1], storage->name);
}

/* The initialiser whose name stands under `key`, if it is what a form asks for. */
static const OnnxTensor *find_part(const NotesReader *r, const Storage *storage,
                                   const char *key, OnnxForm form) {
    const Tree *name = tree_get(find_place(r, storage), key);
    const char *own = name && name->kind == TREE_STRING ? name->string : storage->name;
    const OnnxTensor *tensor = name_map_get(&r->names, own);
    int64_t count, wanted, dim[RANK_MAX];
    const int rank = onnx_form_shape(&storage->tensor, form, dim);
    const bool fits = tensor && net_shape_count(dim, (size_t)rank, &wanted) &&
                      tensor->data_type == onnx_form_type(&storage->tensor, form) &&
                      net_shape_count(tensor->dims, tensor->n_dims, &count) &&
                      count == wanted;
    return fits ? tensor : NULL;
}

/* The form of a storage's numbers; false when they cannot have it. */
static bool find_form(const NotesReader *r, const Storage *storage, OnnxForm *form) {
    const Tree *what = tree_get(find_place(r, storage), "form");
    const Tensor *tensor = &storage->tensor;
    *form = ONNX_AS_IT_IS;
    for (int f = 0; what && what->kind == TREE_STRING && f < ONNX_SCALES; f++)
        if (strcmp(what->string, FORMS[f]) == 0) *form = (OnnxForm)f;
    if (tensor->dtype == DTYPE_Q4) return *form == ONNX_BLOCKS;
    if (*form == ONNX_BLOCKS || (tensor->dtype == DTYPE_Q8 && *form == ONNX_GATES))
        return false;
    return *form != ONNX_GATES || tensor->dim[0] % 4 == 0;
}

/* Makes a quantised storage of its numbers, scales and zero points. */
static bool bind_quantised(const NotesReader *r, Storage *storage, const void *numbers,
                           OnnxForm form) {
    Buf *map;
    Tensor values;
    const OnnxTensor *scales = find_part(r, storage, FORMS[ONNX_SCALES], ONNX_SCALES);
    const OnnxTensor *zeros = storage->tensor.zeros
                                  ? find_part(r, storage, FORMS[ONNX_ZEROS], ONNX_ZEROS)
                                  : NULL;
    const void *scale_bytes = scales ? net_bytes(r->net, scales, &map) : NULL;
    const void *zero_bytes = zeros ? net_bytes(r->net, zeros, &map) : NULL;
    if (!scale_bytes || (storage->tensor.zeros && !zero_bytes) ||
        onnx_form_quantised(&values, &storage->tensor, numbers, form, scale_bytes,
                            zero_bytes, r->diag) != STATUS_OK)
        return false;
    storage_set_values(storage, values);
    return true;
}

/* Numbers that stand in the notes themselves. */
static bool bind_listed(const NotesReader *r, Storage *storage, const Tree *list) {
    const Tensor *shape = &storage->tensor;
    const bool fits = list->kind == TREE_LIST && dtype_is_real(shape->dtype) &&
                      list->count == tensor_count(shape);
    Tensor values, cast = {0};
    void *data;
    if (!fits ||
        tensor_create(&values, DTYPE_F32, shape->rank, shape->dim, r->diag) != STATUS_OK)
        return false;
    bool known = tensor_writable(&values, &data, r->diag) == STATUS_OK;
    float *x = data;
    for (const Tree *item = list->first; item && known; item = item->next) {
        double number = 0;
        known = tree_number(item, &number) && fabs(number) <= FLT_MAX;
        *x++ = (float)number;
    }
    known = known && tensor_cast(&cast, &values, shape->dtype, storage->name, r->diag) ==
                         STATUS_OK;
    tensor_release(&values);
    if (known) storage_set_values(storage, cast);
    return known;
}

static bool bind_storage(const NotesReader *r, Storage *storage) {
    const Tree *listed = tree_get(find_place(r, storage), "values");
    if (listed) return bind_listed(r, storage, listed);
    OnnxForm form;
    Buf *map;
    Tensor values = storage->tensor;
    const OnnxTensor *tensor =
        find_form(r, storage, &form) ? find_part(r, storage, "tensor", form) : NULL;
    const char *bytes = tensor ? net_bytes(r->net, tensor, &map) : NULL;
    if (!bytes) return false;
    if (dtype_is_quantised(storage->tensor.dtype))
        return bind_quantised(r, storage, bytes, form);
    if (form == ONNX_AS_IT_IS && net_view(&values, r->net, tensor)) {
        storage_set_values(storage, values);
        return true;
    }
    if (onnx_form_back(&values, &storage->tensor, bytes, form, r->diag) != STATUS_OK)
        return false;
    storage_set_values(storage, values);
    return true;
}

static bool read_notes(NotesReader *r) {
    const OnnxModel *file = r->net->model, *encoder = r->net->encoder;
    Model *model = r->model;
    const char *ir = find_note(file, KEY_IR);
    Graph *graph;
    if (!ir || !are_of_graph(file) || (encoder && !are_of_graph(encoder)) ||
        !read_map(r, file, model->arena, KEY_CONFIG, &model->config) ||
        !read_map(r, file, model->arena, KEY_PROVENANCE, &model->provenance) ||
        !read_map(r, file, r->scratch, KEY_WEIGHTS, &r->weights[0]) ||
        (encoder && !read_map(r, encoder, r->scratch, KEY_WEIGHTS, &r->weights[1])) ||
        graph_parse(&graph, model->arena, model->graph->ops, KEY_IR, ir, strlen(ir),
                    r->diag) != STATUS_OK)
        return false;
    model->graph = graph;
    for (int i = 0; i < r->net->value_count; i++) {
        const NetValue *value = r->net->values[i];
        if (value->stored)
            name_map_add(&r->names, value->name, (OnnxTensor *)value->stored);
    }
    for (int i = 0; i < graph->storage_count; i++)
        if (!bind_storage(r, graph->storages[i])) return false;
    return true;
}

bool onnx_notes_read(Model *model, const Net *net) {
    NotesReader r = {
        .net = net, .model = model, .scratch = arena_create(), .diag = diag_create()};
    const bool found = read_notes(&r);
    name_map_free(&r.names);
    arena_destroy(r.scratch);
    diag_destroy(r.diag);
    return found;
}
