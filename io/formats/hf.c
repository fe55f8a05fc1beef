/* Hugging Face folders: a graph from the configuration, weights from the checkpoint. */
#include "io/formats/hf.h"

#include "io/families/build.h"
#include "io/families/config_keys.h"
#include "io/families/family.h"
#include "io/families/sentence.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/format.h"
#include "io/formats/sentence_files.h"
#include "io/formats/shards.h"
#include "ir/rewrite.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

static const size_t CONFIG_BYTES_MAX = (size_t)16 << 20;

/* A tensor of the checkpoint, or one of its parts, under the name that it has in the
 * graph. */
typedef struct Binding {
    const char *name; /* in the graph */
    const NamedTensor *source;
    int part, parts; /* which of how many slices; 1 = all of it */
    bool used;
} Binding;

typedef struct Binder {
    Arena *arena;
    const Family *family;
    const Checkpoint *checkpoint;
    Binding *bindings; /* sorted by name */
    int count;
    Graph *graph;
    const HfOptions *options;
    Text created; /* names of the storages to create */
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
    const Tree *type = tree_get_nonnull(config, "model_type");
    const Family *family =
        type && type->kind == TREE_STRING ? family_find(type->string) : NULL;
    if (!family) return fail_family(config, type, diag);
    if (out) *out = family;
    TRY(config_check(config, family->follows, diag));
    TRY(family->build(model, diag));
    TRY(sentence_build(model, diag));
    if (model->graph->task == TASK_NONE) model->graph->task = TASK_EMBED;
    return graph_verify(model->graph, STATUS_INTERNAL, diag);
}

/* A model of a configuration; `read`, if not NULL, gets the keys that are asked for. */
static Status build_model(Model **out, const Tree *config, ConfigKeys *read,
                          const OpTable *ops, Diag *diag) {
    Model *model = model_create(ops);
    model->config = tree_copy(model->arena, config);
    build_watch_config(read);
    Status status = build_graph(NULL, model, diag);
    build_watch_config(NULL);
    if (status == STATUS_OK)
        *out = model;
    else
        model_destroy(model);
    return status;
}

Status hf_build(Model **out, const Tree *config, const OpTable *ops, Diag *diag) {
    return build_model(out, config, NULL, ops, diag);
}

/* Whether others than families read a key: names of labels, numbers of tokens. */
static bool is_passive_key(const char *key) {
    static const char *const NAMES[] = {"architectures", "id2label", "label2id",
                                        "model_type", "num_labels"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(key, NAMES[i]) == 0) return true;
    return text_ends_with(key, "_token_id");
}

/* Warns of keys that nothing reads. */
static void warn_unread_keys(const ConfigKeys *read, const Tree *config, Diag *diag) {
    for (const Tree *value = config->first; value; value = value->next) {
        bool known = is_passive_key(value->key);
        for (int i = 0; i < read->count && !known; i++)
            known = strcmp(read->names[i], value->key) == 0;
        if (known) continue;
        const char *nearest = name_nearest(value->key, read->names, read->count);
        diag_warn(diag, value->key_loc, value->key, "nothing reads this key%s%s%s",
                  nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                  nearest ? "\"?" : "");
    }
}

/* Warns, once, of keys of somebody's config.json that nothing reads and that are not
 * known to change nothing. */
static void warn_ignored_keys(const ConfigKeys *read, const Tree *config, Diag *diag) {
    Text names = {0};
    int count = 0;
    for (const Tree *value = config->first; value; value = value->next) {
        bool known = config_key_is_passive(value->key) || value->kind == TREE_NULL;
        for (int i = 0; i < read->count && !known; i++)
            known = strcmp(read->names[i], value->key) == 0;
        if (!known) text_add(&names, "%s%.60s", count++ ? ", " : "", value->key);
    }
    if (count > 0)
        diag_warn(
            diag, config->loc, NULL,
            "nothing reads th%s of the configuration: %s; what %s ask%s for is left "
            "out",
            count == 1 ? "is key" : "ese keys", names.data, count == 1 ? "it" : "they",
            count == 1 ? "s" : "");
    text_free(&names);
}

Status hf_build_from(Model **out, const Tree *config, ConfigOrigin origin,
                     const OpTable *ops, Diag *diag) {
    Arena *arena = arena_create();
    ConfigKeys read = {.arena = arena};
    Status status = build_model(out, config, &read, ops, diag);
    if (status == STATUS_OK && origin == CONFIG_WRITTEN)
        warn_unread_keys(&read, config, diag);
    if (status == STATUS_OK && origin == CONFIG_FILE)
        warn_ignored_keys(&read, config, diag);
    arena_destroy(arena);
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

/* Lists the tensors, or their parts, by their names in the graph, those left out on
 * purpose excepted. */
static Status bindings_list(Binder *binder) {
    const Checkpoint *checkpoint = binder->checkpoint;
    const Family *family = binder->family;
    const size_t most = SPLIT_MAX * (size_t)checkpoint->count + 1;
    binder->bindings = ARENA_ARRAY(binder->arena, Binding, most);
    for (int i = 0; i < checkpoint->count; i++) {
        const NamedTensor *source = &checkpoint->tensors[i];
        const char *parts[SPLIT_MAX], *name = family->rename(binder->arena, source->name);
        if (!name) continue;
        int count = family_split(family, binder->arena, name, parts);
        if (count == 0) parts[count++] = name;
        for (int part = 0; part < count; part++)
            binder->bindings[binder->count++] =
                (Binding){graph_name(binder, parts[part]), source, part, count, false};
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

/* The beginning in Family.heads that the name has, or NULL. */
static const char *find_head(const Family *family, const char *name) {
    const char *prefix = family->prefix ? family->prefix : "";
    if (strncmp(name, prefix, strlen(prefix)) == 0) name += strlen(prefix);
    for (const char *const *head = family->heads; head && *head; head++)
        if (strncmp(name, *head, strlen(*head)) == 0) return *head;
    return NULL;
}

/* A storage without a tensor: left to be created, or a fault. */
static Status missing(Binder *binder, const Storage *storage) {
    /* a new head is one of which the checkpoint has nothing at all */
    const char *head = find_head(binder->family, storage->name);
    bool new_head = head != NULL;
    for (int i = 0; new_head && i < binder->count; i++)
        new_head = find_head(binder->family, binder->bindings[i].name) != head;
    if (new_head && binder->options->create_heads) {
        text_add(&binder->created, "%s%s", binder->created.length ? ", " : "",
                 storage->name);
        return STATUS_OK;
    }
    diag_fail(binder->diag, STATUS_FORMAT, LOC_FILE(binder->checkpoint->path),
              storage->name, "the checkpoint lacks this tensor");
    if (new_head) {
        diag_hint(binder->diag, "`model: {path: ..., seed: 1}` creates a new head");
        return STATUS_FORMAT;
    }
    /* the nearest name among those that have no place in the graph */
    const char **names =
        ARENA_ARRAY(binder->arena, const char *, (size_t)binder->count + 1);
    int count = 0;
    for (int i = 0; i < binder->count; i++)
        if (!graph_storage(binder->graph, binder->bindings[i].name))
            names[count++] = binder->bindings[i].name;
    const char *nearest = name_nearest(storage->name, names, count);
    if (nearest) diag_hint(binder->diag, "the checkpoint has '%s'", nearest);
    return STATUS_FORMAT;
}

/* Whether two shapes are the same, but for leading ones (a bias that is saved as [1, V]).
 */
static bool shape_same(const Tensor *a, const Tensor *b) {
    const int64_t *x = a->dim, *y = b->dim;
    int n = a->rank, m = b->rank;
    for (; n > m && *x == 1; n--) x++;
    for (; m > n && *y == 1; m--) y++;
    return n == m && memcmp(x, y, sizeof *x * (size_t)n) == 0;
}

/* Whether the options ask for another number of labels than the folder's, for which a
 * head of the old number is of no use. */
static bool has_new_labels(const HfOptions *options) {
    return options->create_heads && tree_get(options->overrides, "num_labels");
}

/* A head of the wrong size of which the checkpoint has tensors; NULL = none. */
static const char *misfit_head(const Binder *binder, const char **tensor) {
    for (int i = 0; i < binder->count; i++) {
        const Binding *binding = &binder->bindings[i];
        const char *head = find_head(binder->family, binding->name);
        const Storage *storage = graph_storage(binder->graph, binding->name);
        *tensor = binding->source->name;
        if (head && storage && binding->parts == 1 &&
            !shape_same(&binding->source->tensor, &storage->tensor))
            return head;
    }
    return NULL;
}

/* Takes the tensors of such heads out of the list: new ones are created. */
static void drop_misfits(Binder *binder) {
    const char *tensor, *head;
    while ((head = misfit_head(binder, &tensor))) {
        int count = 0;
        for (int i = 0; i < binder->count; i++)
            if (find_head(binder->family, binder->bindings[i].name) != head)
                binder->bindings[count++] = binder->bindings[i];
        binder->count = count;
        diag_warn(binder->diag, LOC_FILE(binder->checkpoint->path), tensor,
                  "is of another number of labels: its head is left out for a new one");
    }
}

static Binding *find_binding(const Binder *binder, const char *name) {
    const Binding wanted = {.name = name};
    return bsearch(&wanted, binder->bindings, (size_t)binder->count, sizeof wanted,
                   binding_order);
}

/* Rows of all the storages that share a tensor with `own`; in `first` of those before it.
 */
static int64_t count_rows(const Binder *binder, const Binding *own, int64_t *first) {
    int64_t rows = 0;
    for (int i = 0; i < binder->count; i++) {
        const Binding *other = &binder->bindings[i];
        const Storage *storage = other->source == own->source
                                     ? graph_storage(binder->graph, other->name)
                                     : NULL;
        if (!storage || storage->tensor.rank == 0) continue;
        if (other->part < own->part) *first += storage->tensor.dim[0];
        rows += storage->tensor.dim[0];
    }
    return rows;
}

/* A tensor of another shape than `want`; of positions a changed size of images is why. */
static Status fail_shape(const Binder *binder, const NamedTensor *source,
                         const Tensor *want) {
    const Tree *changed = binder->options->overrides;
    const Tensor *found = &source->tensor;
    char asked[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
    diag_fail(binder->diag, STATUS_FORMAT, LOC_FILE(binder->checkpoint->path),
              source->name, "the configuration asks for shape %s, found %s",
              shape_text(asked, want->rank, want->dim),
              shape_text(have, found->rank, found->dim));
    if (strstr(source->name, "position") && (tree_get_nonnull(changed, "image_size") ||
                                             tree_get_nonnull(changed, "patch_size")))
        diag_hint(binder->diag,
                  "positions are not interpolated: a model keeps the image_size and "
                  "patch_size that it was trained with");
    return STATUS_FORMAT;
}

static Status bind_storage(Binder *binder, Storage *storage) {
    Binding *binding = find_binding(binder, storage->name);
    if (!binding) return missing(binder, storage);
    const Tensor *tensor = &binding->source->tensor;
    const char *name = binding->source->name;
    Loc at = LOC_FILE(binder->checkpoint->path);
    const bool by_rows = binding->parts > 1 && binder->family->joined_rows;
    Tensor whole = storage->tensor; /* shape of that of which it is one of the slices */
    int64_t first = 0;
    if (by_rows)
        whole.dim[0] = count_rows(binder, binding, &first);
    else if (whole.rank > 0)
        whole.dim[whole.rank - 1] *= binding->parts;
    if (!shape_same(tensor, &whole)) return fail_shape(binder, binding->source, &whole);
    if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_F16 &&
        tensor->dtype != DTYPE_BF16)
        return diag_fail(binder->diag, STATUS_FORMAT, at, name,
                         "expected f32, f16 or bf16, found %s",
                         dtype_name(tensor->dtype));
    binding->used = true;
    Tensor bound = tensor_retain(tensor);
    if (by_rows) {
        tensor_release(&bound);
        Tensor shaped = *tensor; /* without leading dimensions of 1 */
        shaped.rank = whole.rank;
        memcpy(shaped.dim, whole.dim, sizeof shaped.dim);
        bound = checkpoint_rows(&shaped, first, storage->tensor.dim[0]);
    } else if (binding->parts > 1) {
        tensor_release(&bound);
        TRY(checkpoint_slice(&bound, tensor, binding->part, binding->parts,
                             binder->diag));
    }
    bound.rank = storage->tensor.rank;
    memcpy(bound.dim, storage->tensor.dim, sizeof bound.dim);
    storage->tensor = bound;
    return STATUS_OK;
}

/* Whether a tensor is the same bytes as one that has its place: PyTorch's files name tied
 * weights under each of their names. */
static bool is_tied(const Binder *binder, const Tensor *tensor) {
    for (int i = 0; i < binder->count; i++) {
        const Tensor *other = &binder->bindings[i].source->tensor;
        if (binder->bindings[i].used && other->buf == tensor->buf &&
            other->offset == tensor->offset && other->dtype == tensor->dtype &&
            tensor_same_shape(other, tensor))
            return true;
    }
    return false;
}

/* Tensors without a place: faults, or parts of heads that are left out. */
static Status check_unused(const Binder *binder) {
    const Loc at = LOC_FILE(binder->checkpoint->path);
    const char *first = NULL;
    int count = 0;
    for (int i = 0; i < binder->count; i++) {
        const Binding *binding = &binder->bindings[i];
        if (binding->used || is_tied(binder, &binding->source->tensor)) continue;
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
    if (has_new_labels(binder->options)) drop_misfits(binder);
    /* Outputs that may go and for which the checkpoint has no weights are taken away. */
    const OptionalOutput *optional = binder->family->optional;
    for (; optional && optional->output; optional++) {
        if (!graph_storage(binder->graph, optional->storage) ||
            find_binding(binder, optional->storage))
            continue;
        graph_remove_output(binder->graph, optional->output);
        graph_remove_dead(binder->graph);
    }
    for (int i = 0; i < binder->graph->storage_count; i++)
        TRY(bind_storage(binder, binder->graph->storages[i]));
    return check_unused(binder);
}

/* Says which storages have no weights yet and creates them. */
static Status create_heads(Model *model, const Binder *binder) {
    const uint64_t seed = binder->options->seed;
    if (binder->created.length == 0) return STATUS_OK;
    diag_warn(binder->diag, LOC_FILE(binder->checkpoint->path), NULL,
              "created: %s (seed %llu)", binder->created.data, (unsigned long long)seed);
    return model_init_weights(model, seed, binder->diag);
}

static Status bind_checkpoint(Model *model, const Family *family,
                              const Checkpoint *checkpoint, const HfOptions *options,
                              Diag *diag) {
    Binder binder = {.arena = arena_create(),
                     .family = family,
                     .checkpoint = checkpoint,
                     .graph = model->graph,
                     .options = options,
                     .diag = diag};
    Status status = bind_weights(&binder);
    if (status == STATUS_OK) status = create_heads(model, &binder);
    text_free(&binder.created);
    arena_destroy(binder.arena);
    model->file_bytes += checkpoint->file_bytes;
    return status;
}

Status hf_bind(Model *model, const Checkpoint *checkpoint, const HfOptions *options,
               Diag *diag) {
    const HfOptions none = {0};
    const Family *family = family_find(tree_get(model->config, "model_type")->string);
    return bind_checkpoint(model, family, checkpoint, options ? options : &none, diag);
}

/* The configuration with the keys of `overrides` in place of its own. */
static Tree *merge_config(Arena *arena, const Tree *config, const Tree *overrides) {
    Tree *merged = tree_new(arena, TREE_MAP, config->loc);
    const bool labels = tree_get(overrides, "num_labels") != NULL;
    for (const Tree *own = config->first; own; own = own->next) {
        const Tree *value = tree_get(overrides, own->key);
        const bool names =
            strcmp(own->key, "id2label") == 0 || strcmp(own->key, "label2id") == 0;
        if (!value && labels && names) continue; /* void with another number of labels */
        if (!value) value = own;
        tree_append(arena, merged, own->key, value->key_loc, tree_copy(arena, value));
    }
    for (const Tree *new = overrides->first; new; new = new->next)
        if (!tree_get(merged, new->key))
            tree_append(arena, merged, new->key, new->key_loc, tree_copy(arena, new));
    return merged;
}

/* Whether a key that changes a configuration has a meaning: config.json has it, the
 * family reads it, or it belongs to one that is read. */
static bool is_known_key(const ConfigKeys *read, const Tree *config, const char *key) {
    if (tree_get(config, key) || strcmp(key, "label2id") == 0 ||
        strcmp(key, "model_type") == 0)
        return true;
    for (int i = 0; i < read->count; i++)
        if (strcmp(read->names[i], key) == 0) return true;
    return false;
}

/* Warns of keys that change nothing, with the nearest name to a misspelt one among those
 * of config.json and those that were read. */
static void warn_unknown_keys(const ConfigKeys *read, const Tree *config,
                              const Tree *overrides, const char *family, Diag *diag) {
    const int most = read->count + config->count;
    const char **names = ARENA_ARRAY(read->arena, const char *, (size_t)most + 1);
    int count = 0;
    for (; count < read->count; count++) names[count] = read->names[count];
    for (const Tree *own = config->first; own; own = own->next) names[count++] = own->key;
    for (const Tree *value = overrides->first; value; value = value->next) {
        if (is_known_key(read, config, value->key)) continue;
        const char *nearest = name_nearest(value->key, names, count);
        diag_warn(diag, value->key_loc, value->key,
                  "neither config.json nor the family %s has this key%s%s%s", family,
                  nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                  nearest ? "\"?" : "");
    }
}

/* Builds the graph of the folder's configuration, with the keys of `overrides`, if any,
 * changed. */
static Status build_changed(const Family **family, Model *model, const Tree *overrides,
                            Diag *diag) {
    const Tree *config = model->config;
    ConfigKeys read = {.arena = model->arena};
    if (overrides && config->kind == TREE_MAP)
        model->config = merge_config(model->arena, config, overrides);
    build_watch_config(&read);
    Status status = build_graph(family, model, diag);
    build_watch_config(NULL);
    if (status == STATUS_OK) warn_ignored_keys(&read, config, diag);
    if (status == STATUS_OK && overrides)
        warn_unknown_keys(&read, config, overrides, (*family)->model_type, diag);
    return status;
}

static Status read_folder(Model *model, const char *folder, const HfOptions *options,
                          Diag *diag) {
    const Family *family;
    const char *path = path_join(model->arena, folder, "config.json");
    TRY(path_check_inside(folder, path, diag));
    char *text;
    size_t length;
    TRY(file_read(&text, &length, model->arena, path, CONFIG_BYTES_MAX, diag));
    Tree *config;
    TRY(json_parse(&config, model->arena, path, text, length, diag));
    model->config = config;
    model->file_bytes = (int64_t)length;
    if (!tree_get(options->overrides, SENTENCE_POOLING))
        TRY(sentence_files_read(config, folder, model->arena, diag));
    TRY(build_changed(&family, model, options->overrides, diag));
    Checkpoint *checkpoint;
    TRY(checkpoint_read(&checkpoint, folder, diag));
    const Status status = bind_checkpoint(model, family, checkpoint, options, diag);
    checkpoint_destroy(checkpoint);
    return status;
}

Status hf_read_with(Model **out, const char *folder, const HfOptions *options,
                    const OpTable *ops, Diag *diag) {
    const HfOptions none = {0};
    Model *model = model_create(ops);
    Status status = read_folder(model, folder, options ? options : &none, diag);
    if (status == STATUS_OK)
        *out = model;
    else
        model_destroy(model);
    return status;
}

Status hf_read(Model **out, const char *folder, const OpTable *ops, Diag *diag) {
    return hf_read_with(out, folder, NULL, ops, diag);
}
