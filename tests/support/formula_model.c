/* What formulas say of a model: see formula_model.h. */
#include "tests/support/formula_model.h"

#include "ir/storage.h"
#include "passes/measure.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MOST = 1 << 16 };

/* Splits "encoder.0.q" in place: the stack stays in `name`; the layer is -1 for none. */
static void split_place(char *name, int *layer, const char **last) {
    char *dot = strrchr(name, '.');
    *layer = -1;
    *last = NULL;
    if (dot) {
        *dot = 0;
        *last = dot + 1;
    }
    dot = strrchr(name, '.');
    if (dot && isdigit((unsigned char)dot[1])) {
        *layer = atoi(dot + 1);
        *dot = 0;
    }
}

Storage *formula_storage(Formula *f, Model *model, const char *name) {
    char copy[FORMULA_NAME_BYTES];
    snprintf(copy, sizeof copy, "%s", name);
    if (*name == '@') {
        Storage *storage = graph_storage(model->graph, name + 1);
        if (!storage) formula_fail(f, "there is no storage %s", name + 1);
        return storage;
    }
    char *operand = strrchr(copy, '.');
    if (!operand) formula_fail(f, "there is no %s", name);
    *operand++ = 0;
    int layer;
    const char *role;
    split_place(copy, &layer, &role);
    const Role which = role ? role_parse(role) : ROLE_COUNT;
    const Node *node =
        which < ROLE_COUNT ? graph_find(model->graph, copy, layer, which) : NULL;
    const int index = node ? op_operand_index(node->op, operand) : -1;
    if (index < 0 || !node_has(node, index) || !node->in[index]->storage)
        formula_fail(f, "there are no weights %s", name);
    return node->in[index]->storage;
}

double formula_uses(const Model *model, const Storage *storage) {
    double uses = 0;
    for (const Node *node = model->graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            uses += node->in[i] && node->in[i]->storage == storage;
    return uses;
}

Value formula_output(Formula *f, Model *model, const char *name) {
    double *values = ARENA_ARRAY(f->arena, double, OUTPUT_MOST);
    if (!graph_output(model->graph, name)) formula_fail(f, "there is no output %s", name);
    const int64_t count = configured_run(model, name, 0, values, OUTPUT_MOST);
    Value out = value_new(f, 1, &count);
    memcpy(out.v, values, (size_t)count * sizeof *values);
    return out;
}

double formula_layer_size(Formula *f, const Model *model, const char *place, Role role) {
    char name[FORMULA_NAME_BYTES];
    int layer;
    const char *last;
    snprintf(name, sizeof name, "%.*s.", FORMULA_NAME_BYTES - 2, place);
    split_place(name, &layer, &last);
    const Node *node = graph_find(model->graph, name, layer, role);
    if (!node) return 0;
    if (role == ROLE_FFN_IN) return (double)node->type.dim[node->type.rank - 1];
    Text attrs = {0};
    fields_print(&attrs, node->op->fields, node->attrs, NULL);
    const char *heads = attrs.data ? strstr(attrs.data, "heads=") : NULL;
    if (!heads) formula_fail(f, "%s has no heads", place);
    const double count = atof(heads + strlen("heads="));
    text_free(&attrs);
    return count;
}

Value formula_record(Formula *f, const Model *model, const char *name) {
    const Tree *tree = model->provenance;
    const char *path = name + strcspn(name, ".");
    if (strncmp(name, "record", 6) == 0) {
        const Tree *steps = tree_get(tree, "steps");
        const int step = atoi(name + 6);
        const Tree *one = steps ? (step ? steps->first : steps->last) : NULL;
        for (int i = 1; one && i < step; i++) one = one->next;
        tree = tree_get(one, "record");
    }
    while (tree && *path == '.') {
        char key[FORMULA_NAME_BYTES];
        const int length = (int)strcspn(++path, ".");
        snprintf(key, sizeof key, "%.*s", length, path);
        path += length;
        if (tree->kind == TREE_LIST) {
            const Tree *item = tree->first;
            for (int i = atoi(key); item && i > 0; i--) item = item->next;
            tree = item;
        } else {
            tree = tree_get(tree, key);
        }
    }
    if (!tree) {
        Text all = {0};
        tree_print_json(&all, model->provenance, 0);
        formula_fail(f, "there is no %s in %s", name, all.data);
    }
    if (tree->kind == TREE_LIST) {
        const int64_t count = tree->count;
        Value list = value_new(f, 1, &count);
        int64_t i = 0;
        for (const Tree *item = tree->first; item; item = item->next)
            list.v[i++] = item->kind == TREE_INT ? (double)item->integer : item->real;
        return list;
    }
    switch (tree->kind) {
    case TREE_BOOL: return value_number(f, tree->boolean);
    case TREE_INT: return value_number(f, (double)tree->integer);
    case TREE_FLOAT: return value_number(f, tree->real);
    default: formula_fail(f, "%s is no number", name);
    }
}

Value formula_measure(Formula *f, Model *model, const char *name, bool *known) {
    Measure measure = {0};
    *known = true;
    if (strcmp(name, "nodes") == 0) {
        double nodes = 0;
        for (const Node *n = model->graph->first; n; n = n->next)
            nodes += !node_is_leaf(n);
        return value_number(f, nodes);
    }
    if (strcmp(name, "storages") == 0)
        return value_number(f, model->graph->storage_count);
    if (strcmp(name, "gaussians") == 0)
        return value_number(f, graph_gaussian_count(model->graph));
    *known = strcmp(name, "parameters") == 0 || strcmp(name, "bytes") == 0 ||
             strcmp(name, "flops") == 0;
    Diag *diag = diag_create();
    if (*known) assert_ok(model_measure(&measure, model, diag), diag);
    diag_destroy(diag);
    return value_number(f, *name == 'p'   ? (double)measure.parameters
                           : *name == 'b' ? (double)measure.bytes
                                          : measure.flops);
}

Value formula_coordinate(Formula *f, const char *name) {
    if (!f->like) formula_fail(f, "%s has no shape here", name);
    Value out = value_new(f, f->like->rank, f->like->dim);
    const int64_t row = out.rank > 0 ? out.dim[out.rank - 1] : 1;
    for (int64_t i = 0; i < out.count; i++)
        out.v[i] = (double)(*name == 'i' ? i : *name == 'r' ? i / row : i % row);
    return out;
}

Value formula_gaussian(Formula *f, const Storage *storage, bool mean) {
    Value out = value_new(f, storage->tensor.rank, storage->tensor.dim);
    if (!storage->gaussian) formula_fail(f, "%s has no Gaussian", storage->name);
    (mean ? gaussian_mean_f64 : gaussian_variance_f64)(storage->gaussian, 0, out.count,
                                                       out.v);
    return out;
}
