/* Hugging Face folders: a graph from the configuration, weights from the checkpoint. */
#include "io/hf.h"

#include "io/family.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "ir/rewrite.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

static const size_t CONFIG_BYTES_MAX = (size_t)16 << 20;

/* A tensor of the checkpoint under the name that it has in the graph. */
typedef struct Binding {
    const char *name; /* in the graph */
    const NamedTensor *source;
    bool used;
} Binding;

typedef struct Binder {
    Arena *arena;
    const Family *family;
    const Checkpoint *checkpoint;
    Binding *bindings; /* sorted by name */
    int count;
    Graph *graph;
    Diag *diag;
} Binder;

static Status fail_family(const Tree *config, const Tree *type, Diag *diag) {
    Text names = {0};
    for (const Family *const *family = family_list(); *family; family++)
        text_add(&names, "%s%s", names.length ? ", " : "", (*family)->model_type);
    if (!type)
        diag_fail(diag, STATUS_MODEL, config->loc, "model_type",
                  "missing: expected one of %s", names.data);
    else if (type->kind != TREE_STRING)
        diag_fail(diag, STATUS_MODEL, type->loc, "model_type",
                  "expected one of %s, found %s", names.data, tree_kind_name(type->kind));
    else
        diag_fail(diag, STATUS_MODEL, type->loc, "model_type",
                  "expected one of %s, found '%.60s'", names.data, type->string);
    text_free(&names);
    return STATUS_MODEL;
}

/* Finds the family of model->config and lets it build the graph. */
static Status build_graph(const Family **out, Model *model, Diag *diag) {
    const Tree *config = model->config;
    if (config->kind != TREE_MAP)
        return diag_fail(diag, STATUS_MODEL, config->loc, NULL,
                         "expected a map with the model's configuration, found %s",
                         tree_kind_name(config->kind));
    const Tree *type = tree_get(config, "model_type");
    if (type && type->kind == TREE_NULL) type = NULL;
    const Family *family =
        type && type->kind == TREE_STRING ? family_find(type->string) : NULL;
    if (!family) return fail_family(config, type, diag);
    if (out) *out = family;
    TRY(family->build(model, diag));
    return graph_verify(model->graph, STATUS_INTERNAL, diag);
}

Status hf_build(Model **out, const Tree *config, const OpTable *ops, Diag *diag) {
    Model *model = model_create(ops);
    model->config = tree_copy(model->arena, config);
    Status status = build_graph(NULL, model, diag);
    if (status == STATUS_OK)
        *out = model;
    else
        model_destroy(model);
    return status;
}

static int binding_order(const void *a, const void *b) {
    return strcmp(((const Binding *)a)->name, ((const Binding *)b)->name);
}

/* The name with the family's prefix added or taken away if the graph has it so. */
static const char *graph_name(const Binder *binder, const char *name) {
    const char *prefix = binder->family->prefix;
    if (!prefix || graph_storage(binder->graph, name)) return name;
    const size_t length = strlen(prefix);
    const char *other = strncmp(name, prefix, length) == 0
                            ? name + length
                            : arena_printf(binder->arena, "%s%s", prefix, name);
    return graph_storage(binder->graph, other) ? other : name;
}

/* Lists the tensors by their names in the graph, those left out on purpose excepted. */
static Status bindings_list(Binder *binder) {
    const Checkpoint *checkpoint = binder->checkpoint;
    binder->bindings = ARENA_ARRAY(binder->arena, Binding, (size_t)checkpoint->count + 1);
    for (int i = 0; i < checkpoint->count; i++) {
        const NamedTensor *source = &checkpoint->tensors[i];
        const char *name = binder->family->rename(binder->arena, source->name);
        if (!name) continue;
        name = graph_name(binder, name);
        binder->bindings[binder->count++] = (Binding){name, source, false};
    }
    qsort(binder->bindings, (size_t)binder->count, sizeof(Binding), binding_order);
    for (int i = 1; i < binder->count; i++)
        if (strcmp(binder->bindings[i].name, binder->bindings[i - 1].name) == 0)
            return diag_fail(binder->diag, STATUS_FORMAT, LOC_FILE(checkpoint->path),
                             binder->bindings[i].source->name,
                             "another tensor has the same place in the model: '%s'",
                             binder->bindings[i - 1].source->name);
    return STATUS_OK;
}

/* A hint with the tensor nearest to a name, among those not used. */
static void hint_nearest(const Binder *binder, const char *name) {
    const char **names =
        ARENA_ARRAY(binder->arena, const char *, (size_t)binder->count + 1);
    int count = 0;
    for (int i = 0; i < binder->count; i++)
        if (!graph_storage(binder->graph, binder->bindings[i].name))
            names[count++] = binder->bindings[i].name;
    const char *nearest = name_nearest(name, names, count);
    if (nearest) diag_hint(binder->diag, "the checkpoint has '%s'", nearest);
}

static Status missing(const Binder *binder, const Storage *storage) {
    diag_fail(binder->diag, STATUS_FORMAT, LOC_FILE(binder->checkpoint->path),
              storage->name, "the checkpoint lacks this tensor");
    hint_nearest(binder, storage->name);
    return STATUS_FORMAT;
}

static bool shape_same(const Tensor *a, const Tensor *b) {
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) == 0;
}

static Binding *find_binding(const Binder *binder, const char *name) {
    const Binding wanted = {.name = name};
    return bsearch(&wanted, binder->bindings, (size_t)binder->count, sizeof wanted,
                   binding_order);
}

/* Takes away the outputs that may go and for which the checkpoint has no weights. */
static void drop_outputs(const Binder *binder) {
    const OptionalOutput *optional = binder->family->optional;
    for (; optional && optional->output; optional++) {
        if (!graph_storage(binder->graph, optional->storage) ||
            find_binding(binder, optional->storage))
            continue;
        graph_remove_output(binder->graph, optional->output);
        graph_remove_dead(binder->graph);
    }
}

static Status bind_storage(Binder *binder, Storage *storage) {
    Binding *binding = find_binding(binder, storage->name);
    if (!binding) return missing(binder, storage);
    const Tensor *tensor = &binding->source->tensor;
    const char *name = binding->source->name;
    Loc at = LOC_FILE(binder->checkpoint->path);
    char want[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
    if (!shape_same(tensor, &storage->tensor))
        return diag_fail(binder->diag, STATUS_FORMAT, at, name,
                         "config.json asks for shape %s, found %s",
                         shape_text(want, storage->tensor.rank, storage->tensor.dim),
                         shape_text(have, tensor->rank, tensor->dim));
    if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_F16 &&
        tensor->dtype != DTYPE_BF16)
        return diag_fail(binder->diag, STATUS_FORMAT, at, name,
                         "expected f32, f16 or bf16, found %s",
                         dtype_name(tensor->dtype));
    binding->used = true;
    storage->tensor = tensor_retain(tensor);
    return STATUS_OK;
}

/* Tensors without a place: faults, or parts of heads that are left out. */
static Status check_unused(const Binder *binder) {
    const Loc at = LOC_FILE(binder->checkpoint->path);
    const char *first = NULL;
    int count = 0;
    for (int i = 0; i < binder->count; i++) {
        const Binding *binding = &binder->bindings[i];
        if (binding->used) continue;
        if (!binder->family->spare || !binder->family->spare(binding->name))
            return diag_fail(binder->diag, STATUS_FORMAT, at, binding->source->name,
                             "the model has no place for this tensor");
        if (count++ == 0) first = binding->source->name;
    }
    if (count > 0)
        diag_warn(binder->diag, at, first,
                  "%d tensor%s of heads that the model does not have left out", count,
                  count == 1 ? "" : "s");
    return STATUS_OK;
}

static Status bind_weights(Binder *binder) {
    TRY(bindings_list(binder));
    drop_outputs(binder);
    for (int i = 0; i < binder->graph->storage_count; i++)
        TRY(bind_storage(binder, binder->graph->storages[i]));
    return check_unused(binder);
}

static Status read_weights(Model *model, const Family *family, const char *folder,
                           Diag *diag) {
    Checkpoint *checkpoint;
    TRY(checkpoint_read(&checkpoint, folder, diag));
    Binder binder = {.arena = arena_create(),
                     .family = family,
                     .checkpoint = checkpoint,
                     .graph = model->graph,
                     .diag = diag};
    const Status status = bind_weights(&binder);
    arena_destroy(binder.arena);
    checkpoint_destroy(checkpoint);
    return status;
}

static Status read_folder(Model *model, const char *folder, Diag *diag) {
    const Family *family;
    const char *path = path_join(model->arena, folder, "config.json");
    TRY(path_check_inside(folder, path, diag));
    TRY(json_read(&model->config, model->arena, path, CONFIG_BYTES_MAX, diag));
    TRY(build_graph(&family, model, diag));
    return read_weights(model, family, folder, diag);
}

Status hf_read(Model **out, const char *folder, const OpTable *ops, Diag *diag) {
    Model *model = model_create(ops);
    Status status = read_folder(model, folder, diag);
    if (status == STATUS_OK)
        *out = model;
    else
        model_destroy(model);
    return status;
}
