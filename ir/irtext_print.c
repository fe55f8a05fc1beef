/* IR text: printing. */
#include "ir/graph_unchecked.h"
#include "ir/irtext.h"
#include "ir/irtext_lex.h"
#include "ir/node_names.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What a graph is printed with. */
typedef struct Printer {
    Text *text;
    Arena *scratch;
    const char **names; /* by Node.id; NULL = nodes are numbered */
    bool values;
} Printer;

static void print_name(Text *text, const char *name) {
    const char *p = name;
    while (lex_is_name_byte(*p)) p++;
    if (*p || p == name)
        text_quoted(text, name);
    else
        text_add(text, "%s", name);
}

static void print_reference(const Printer *p, const Node *node) {
    if (!node_is_leaf(node) && !p->names) {
        text_add(p->text, "%%%d", node->id);
    } else if (!node_is_leaf(node)) {
        text_add(p->text, "%%");
        print_name(p->text, p->names[node->id]);
    } else {
        text_add(p->text, node->storage ? "@" : "$");
        print_name(p->text, node->storage ? node->storage->name : node->name);
    }
}

static void print_init(Text *text, const Init *init) {
    static const char *const NAMES[] = {[INIT_ZEROS] = "zeros",
                                        [INIT_ONES] = "ones",
                                        [INIT_NORMAL] = "normal",
                                        [INIT_TRUNC_NORMAL] = "trunc_normal",
                                        [INIT_IDENTITY] = "identity"};
    if (init->kind == INIT_ZEROS) return;
    text_add(text, " init %s", NAMES[init->kind]);
    if (init->kind != INIT_NORMAL && init->kind != INIT_TRUNC_NORMAL) return;
    text_add(text, "(");
    text_real(text, init->std);
    text_add(text, ")");
}

/* What the elements of a storage are, as a comment. Sums are in double, element by
 * element, so that the same weights give the same text everywhere. */
static void print_values(Text *text, const Tensor *tensor) {
    enum { BLOCK = 1024 };
    double block[BLOCK], squares = 0, least = INFINITY, most = -INFINITY;
    const int64_t count = tensor_count(tensor);
    int64_t zeros = 0;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = count - first < BLOCK ? count - first : BLOCK;
        tensor_read_f64(tensor, first, n, block);
        for (int64_t i = 0; i < n; i++) {
            squares += block[i] * block[i];
            if (!(block[i] >= least)) least = block[i];
            if (!(block[i] <= most)) most = block[i];
            zeros += block[i] == 0;
        }
    }
    char hash[HASH_TEXT_BYTES];
    tensor_hash(tensor, hash);
    text_add(text, " # norm %.9g min %.9g max %.9g zeros %" PRId64 " hash %s",
             sqrt(squares), least, most, zeros, hash);
}

static void print_param(Text *text, const Storage *storage, bool values) {
    const Tensor *tensor = &storage->tensor;
    text_add(text, "param @");
    print_name(text, storage->name);
    char form[FORM_TEXT_BYTES], shape[SHAPE_TEXT_BYTES];
    text_add(text, " : %s%s", tensor_form_text(form, tensor),
             shape_text(shape, tensor->rank, tensor->dim));
    print_init(text, &storage->init);
    const char *before = " kept ";
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (!lineage_is_told(&storage->kept[axis])) continue;
        text_add(text, "%s%d=", before, axis);
        lineage_print(text, &storage->kept[axis]);
        before = " ";
    }
    if (storage->frozen) text_add(text, " frozen");
    if (values && tensor_data(tensor)) print_values(text, tensor);
    text_add(text, "\n");
}

/* Operands in order; optional ones with their names. */
static void print_operands(const Printer *p, const Node *node) {
    const Operand *operands = node->op->operands;
    int single = op_single_count(node->op);
    const char *separator = "";
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        text_add(p->text, "%s", separator);
        if (i < single && operand_is_named(&operands[i]))
            text_add(p->text, "%s=", operands[i].name);
        print_reference(p, node->in[i]);
        separator = ", ";
    }
}

static void print_place(Text *text, const Node *node) {
    if (node->stack) {
        text_add(text, " at ");
        Text place = {0};
        text_add(&place, "%s", node->stack);
        if (node->layer >= 0) text_add(&place, ".%d", node->layer);
        print_name(text, place.data);
        text_free(&place);
    }
    if (node->role != ROLE_NONE) text_add(text, " as %s", role_name(node->role));
}

static void print_node(const Printer *p, const Node *node) {
    Text *text = p->text;
    const Op *op = node->op;
    print_reference(p, node);
    text_add(text, " = %s(", op->name);
    print_operands(p, node);
    text_add(text, ")");
    if (op->fields) {
        Text attrs = {0};
        fields_print(&attrs, op->fields, node->attrs, attrs_defaults(p->scratch, op));
        if (attrs.length > 0) text_add(text, " {%s}", attrs.data);
        text_free(&attrs);
    }
    text_add(text, " : ");
    type_print(text, &node->type);
    print_place(text, node);
    text_add(text, "\n");
}

static void print_graph(Text *text, Graph *graph, bool named, bool values) {
    Printer p = {.text = text, .scratch = arena_create(), .values = values};
    graph_number(graph);
    if (named) p.names = graph_node_names(p.scratch, graph);
    text_add(text, "ir %d\n", named ? 2 : 1);
    const Task task = graph_task(graph);
    if (task != graph_implied_task(graph)) text_add(text, "task %s\n", task_name(task));
    for (const Node *n = graph->first; n; n = n->next) {
        if (node_is_input(n)) {
            text_add(text, "input ");
            print_name(text, n->name);
            text_add(text, " : ");
            type_print(text, &n->type);
            text_add(text, "\n");
        } else if (n->storage) {
            print_param(text, n->storage, p.values);
        } else {
            print_node(&p, n);
        }
    }
    for (int i = 0; i < graph->output_count; i++) {
        text_add(text, "output ");
        print_name(text, graph->outputs[i].name);
        text_add(text, " = ");
        print_reference(&p, graph->outputs[i].node);
        text_add(text, "\n");
    }
    arena_destroy(p.scratch);
}

void graph_print(Text *text, Graph *graph) {
    print_graph(text, graph, false, false);
}

void graph_print_values(Text *text, Graph *graph) {
    print_graph(text, graph, false, true);
}

void graph_print_named(Text *text, Graph *graph, bool values) {
    print_graph(text, graph, true, values);
}
