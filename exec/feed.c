/* Feed: see exec/feed.h. */
#include "exec/feed.h"

#include "exec/workspace.h"

#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

static void add_columns(Text *text, const Batches *data) {
    for (int i = 0; i < data->column_count; i++)
        text_add(text, "%s%s", i ? ", " : "", data->columns[i].name);
}

static Status fail_missing(const Node *input, const Batches *data, Diag *diag) {
    Text columns = {0};
    text_add(&columns, "%s", "");
    add_columns(&columns, data);
    Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, input->name,
                              "the model's input has no column in data set \"%s\"",
                              data->name ? data->name : "");
    if (strncmp(input->name, "masked_", 7) == 0)
        diag_hint(diag, "text data masks tokens with `mask_share: 0.15`");
    diag_note(diag, "the data set's columns are: %s", columns.data);
    text_free(&columns);
    return status;
}

static Status fail_shape(const Node *input, const Column *column, const Batches *data,
                         Diag *diag) {
    Type want = input->type;
    if (want.rank > 0) {
        want.rank--;
        memmove(want.dim, want.dim + 1, (size_t)want.rank * sizeof *want.dim);
    }
    Text expected = {0}, found = {0};
    type_print(&expected, &want);
    type_print(&found, &column->type);
    Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, input->name,
                              "the model expects samples of %s, found %s in data set "
                              "\"%s\"",
                              expected.data, found.data, data->name ? data->name : "");
    text_free(&expected);
    text_free(&found);
    return status;
}

/* Matches a column with an input, symbols taking the column's sizes. */
static bool match_type(const Type *input, const Type *column,
                       int64_t sizes[DIM_SYMBOLS]) {
    if (input->dtype != column->dtype || input->rank != column->rank + 1) return false;
    if (input->dim[0] != DIM_N) return false;
    for (int i = 0; i < column->rank; i++) {
        int64_t want = input->dim[i + 1];
        if (want == DIM_N) return false;
        if (want < 0 && column->dim[i] == want) continue; /* padded batch by batch */
        if (want < 0) {
            int64_t *size = &sizes[DIM_INDEX(want)];
            if (*size == 0) *size = column->dim[i];
            want = *size;
        }
        if (want != column->dim[i]) return false;
    }
    return true;
}

static Status check_inputs(const Graph *graph, const bool *mark, const Batches *data,
                           int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!mark[node->id] || !node->name || !(node->op->flags & OP_LEAF)) continue;
        int i = batches_column(data, node->name);
        if (i < 0) return fail_missing(node, data, diag);
        const Column *column = &data->columns[i];
        if (!match_type(&node->type, &column->type, sizes))
            return fail_shape(node, column, data, diag);
    }
    return STATUS_OK;
}

Status feed_check(Graph *graph, Node *const *roots, int count, const Batches *data,
                  int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    bool *mark = memory_alloc((size_t)graph_number(graph) + 1, sizeof *mark);
    for (int i = 0; i < count; i++) mark[roots[i]->id] = true;
    plan_mark(graph, mark);
    if (data->length) sizes[DIM_INDEX(DIM_T)] = data->max_tokens;
    if (data->source_length) sizes[DIM_INDEX(DIM_S)] = data->max_source;
    if (data->masked) sizes[DIM_INDEX(DIM_M)] = batches_masked(data, data->max_tokens);
    Status status = check_inputs(graph, mark, data, sizes, diag);
    free(mark);
    return status;
}

/* ---- fetching ---- */

/* Bytes of a column for so many samples, of the longest length. */
static size_t column_bytes(const Batches *data, const Column *column, int64_t samples) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_T)] = data->max_tokens,
                                        [DIM_INDEX(DIM_S)] = data->max_source,
                                        [DIM_INDEX(DIM_M)] =
                                            batches_masked(data, data->max_tokens)};
    Type bound = column->type;
    for (int i = 0; i < bound.rank; i++)
        if (bound.dim[i] < 0) bound.dim[i] = sizes[DIM_INDEX(bound.dim[i])];
    return (size_t)(samples * type_count(&bound)) * dtype_bytes(bound.dtype);
}

Status feed_open(Feed *feed, const Batches *data, int64_t samples, Diag *diag) {
    (void)diag;
    size_t columns = (size_t)data->column_count + 1;
    *feed = (Feed){.data = data, .samples = samples};
    feed->column = memory_alloc(columns, sizeof *feed->column);
    feed->spare = memory_alloc(columns, sizeof *feed->spare);
    return STATUS_OK;
}

void feed_close(Feed *feed) {
    for (int i = 0; feed->spare && i < feed->data->column_count; i++)
        free(feed->spare[i]);
    free(feed->spare);
    free(feed->column);
    *feed = (Feed){0};
}

/* Memory of its own for a column that no input takes; made at the first use. */
static void *spare_column(Feed *feed, int i) {
    if (!feed->spare[i])
        feed->spare[i] = memory_alloc(
            1, column_bytes(feed->data, &feed->data->columns[i], feed->samples) + 1);
    return feed->spare[i];
}

/* Index of the first value that may not be an index, -1 when there is none. */
static int64_t find_bad_index(const PlanNode *input, const int32_t *data) {
    for (int64_t i = 0; i < input->count; i++)
        if ((data[i] < 0 || data[i] >= input->index_limit) &&
            !(data[i] == INDEX_SKIP && input->index_skip))
            return i;
    return -1;
}

static Status fail_index(const Feed *feed, const PlanNode *input, int64_t sample,
                         int32_t found, Diag *diag) {
    Status status =
        diag_fail(diag, STATUS_MODEL, LOC_NONE, feed->data->name,
                  "sample %lld: expected %s from 0 to %lld, found %d", (long long)sample,
                  input->node->name, (long long)input->index_limit - 1, (int)found);
    if (input->index_skip)
        diag_hint(diag, "classes of the model: %lld; label %d leaves a row out",
                  (long long)input->index_limit, INDEX_SKIP);
    else
        diag_hint(diag,
                  "the model's table has %lld rows: the tokenizer or data may belong to "
                  "another model",
                  (long long)input->index_limit);
    return status;
}

static bool is_index(const PlanNode *input) {
    return input && input->index_limit != 0 && input->type.dtype == DTYPE_I32;
}

static Status check_column(const Feed *feed, int i, const PlanNode *input,
                           const int64_t *index, int64_t n, Diag *diag) {
    if (!is_index(input)) return STATUS_OK;
    const int32_t *data = feed->column[i];
    const int64_t bad = find_bad_index(input, data);
    if (bad < 0) return STATUS_OK;
    return fail_index(feed, input, index[bad / (input->count / n)], data[bad], diag);
}

Status feed_check_rows(const Feed *feed, Workspace *workspace, const char *name,
                       const int64_t *index, const int64_t *rows, int64_t n, Diag *diag) {
    const PlanNode *input = workspace_input_node(workspace, name);
    if (!is_index(input)) return STATUS_OK;
    const int32_t *data = workspace_input(workspace, name);
    const int64_t bad = find_bad_index(input, data);
    if (bad < 0) return STATUS_OK;
    const int64_t row = bad / (input->count / n);
    return fail_index(feed, input, index[rows[row]], data[bad], diag);
}

/* Fetches into the columns that are set, and checks what came for the plan's inputs. */
static Status fetch_columns(Feed *feed, const Workspace *workspace, const Fetch *what,
                            Diag *diag) {
    const Batches *data = feed->data;
    TRY(data->fetch(data, what, feed->column, diag));
    for (int i = 0; i < data->column_count; i++) {
        const PlanNode *input = workspace_input_node(workspace, data->columns[i].name);
        if (input && feed->column[i])
            TRY(check_column(feed, i, input, what->index, what->n, diag));
    }
    return STATUS_OK;
}

Status feed_fetch(Feed *feed, Workspace *workspace, const Fetch *what, Diag *diag) {
    const Batches *data = feed->data;
    for (int i = 0; i < data->column_count; i++) {
        void *input = workspace_input(workspace, data->columns[i].name);
        feed->column[i] = input ? input : spare_column(feed, i);
    }
    return fetch_columns(feed, workspace, what, diag);
}

Status feed_fetch_integers(Feed *feed, Workspace *workspace, const Fetch *what,
                           Diag *diag) {
    const Batches *data = feed->data;
    bool any = false;
    for (int i = 0; i < data->column_count; i++) {
        const Column *column = &data->columns[i];
        feed->column[i] = column->type.dtype == DTYPE_I32
                              ? workspace_input(workspace, column->name)
                              : NULL;
        any = any || feed->column[i];
    }
    if (!any) return STATUS_OK;
    return data->partial ? fetch_columns(feed, workspace, what, diag)
                         : feed_fetch(feed, workspace, what, diag);
}
