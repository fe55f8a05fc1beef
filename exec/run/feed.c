/* Feed: see exec/run/feed.h. */
#include "exec/run/feed.h"

#include "ir/model_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

static Status fail_missing(const Node *input, const Batches *data, Diag *diag) {
    Text columns = {0};
    text_add(&columns, "%s", ""); /* a text also where there is no column */
    for (int i = 0; i < data->column_count; i++)
        text_add(&columns, "%s%s", i ? ", " : "", data->columns[i].name);
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

/* Whether an input that has no column is a mask of samples that nothing fills up. */
static bool is_full_mask(const char *input, const Batches *data) {
    return input_is_mask(input) && !data->length && !data->source_length &&
           batches_column(data, input) < 0;
}

static Status check_inputs(const Graph *graph, const bool *mark, const Batches *data,
                           int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!mark[node->id] || !node->name || !node_is_leaf(node)) continue;
        int i = batches_column(data, node->name);
        if (is_full_mask(node->name, data)) continue;
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

/* ---- limits ---- */

/* What the integers of a column may be. */
typedef struct Limit {
    const char *name;
    int64_t count; /* of one run */
    int64_t below; /* values lie in [0, below); 0 = they may be any */
    bool labels;   /* classes, else rows of a table */
    bool skip;     /* or INDEX_SKIP */
} Limit;

static Limit limit_of(const PlanNode *input) {
    if (!input || input->type.dtype != DTYPE_I32) return (Limit){0};
    return (Limit){.name = input->node->name,
                   .count = input->count,
                   .below = input->index_limit,
                   .labels = input->index_skip,
                   .skip = input->index_skip};
}

static Status fail_limit(const Feed *feed, const Limit *limit, int64_t sample,
                         int32_t found, Diag *diag) {
    const long long below = (long long)limit->below;
    Arena *arena = arena_create();
    Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, feed->data->name,
                              "%s: expected %s from 0 to %lld, found %d",
                              batches_sample(arena, feed->data, sample), limit->name,
                              below - 1, (int)found);
    arena_destroy(arena);
    if (limit->labels && limit->skip)
        diag_hint(diag, "classes of the model: %lld; label %d leaves a row out", below,
                  INDEX_SKIP);
    else if (limit->labels)
        diag_hint(diag, "classes of the model: %lld", below);
    else
        diag_hint(diag,
                  "the model's table has %lld rows: the tokenizer or data may belong to "
                  "another model",
                  below);
    return status;
}

/* `rows` of data row r belong to sample index[rows[r]], without `rows` to index[r]. */
static Status check_limit(const Feed *feed, const Limit *limit, const int32_t *data,
                          const int64_t *index, const int64_t *rows, int64_t n,
                          Diag *diag) {
    int64_t bad = 0; /* the first value that is out of bounds */
    if (limit->below <= 0) return STATUS_OK;
    while (bad < limit->count && ((data[bad] >= 0 && data[bad] < limit->below) ||
                                  (data[bad] == INDEX_SKIP && limit->skip)))
        bad++;
    if (bad == limit->count) return STATUS_OK;
    const int64_t row = bad / (limit->count / n);
    return fail_limit(feed, limit, index[rows ? rows[row] : row], data[bad], diag);
}

Status feed_check_rows(const Feed *feed, Workspace *workspace, const char *name,
                       const int64_t *index, const int64_t *rows, int64_t n, Diag *diag) {
    const Limit limit = limit_of(workspace_input_node(workspace, name));
    return check_limit(feed, &limit, workspace_input(workspace, name), index, rows, n,
                       diag);
}

/* Sets the masks to one that samples of one length lack. */
static void fill_masks(const Feed *feed, Workspace *workspace) {
    static const char *const MASKS[] = {INPUT_MASK, INPUT_TARGET_MASK};
    for (size_t m = 0; m < sizeof MASKS / sizeof *MASKS; m++) {
        int32_t *mask = workspace_input(workspace, MASKS[m]);
        if (!mask || !is_full_mask(MASKS[m], feed->data)) continue;
        const int64_t count = workspace_input_node(workspace, MASKS[m])->count;
        for (int64_t i = 0; i < count; i++) mask[i] = 1;
    }
}

/* Fetches into the columns that are set, and checks what came for the plan's inputs. */
static Status fetch_columns(Feed *feed, Workspace *workspace, const Fetch *what,
                            Diag *diag) {
    const Batches *data = feed->data;
    fill_masks(feed, workspace);
    TRY(data->fetch(data, what, feed->column, diag));
    for (int i = 0; i < data->column_count; i++) {
        const Limit limit =
            limit_of(workspace_input_node(workspace, data->columns[i].name));
        if (feed->column[i])
            TRY(check_limit(feed, &limit, feed->column[i], what->index, NULL, what->n,
                            diag));
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

Status feed_fetch_columns(Feed *feed, const Fetch *what, Diag *diag) {
    const Batches *data = feed->data;
    for (int i = 0; i < data->column_count; i++) feed->column[i] = spare_column(feed, i);
    return data->fetch(data, what, feed->column, diag);
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

/* ---- all samples ---- */

static void range_add(ColumnRange *range, const int32_t *data, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (data[i] == INDEX_SKIP) {
            range->skips = true;
            continue;
        }
        if (data[i] < range->least) range->least = data[i];
        if (data[i] > range->most) range->most = data[i];
    }
}

/* Fetches every sample at the longest length: its integers alone where the data set can
 * leave the others out. With `limits`, by column, checks it against them; else collects
 * the ranges of all integer columns. */
static Status visit_samples(const Batches *data, const Limit *limits, ColumnRange *ranges,
                            Diag *diag) {
    Feed feed;
    Status status = feed_open(&feed, data, 1, diag);
    const Fetch longest = {.n = 1,
                           .tokens = data->length ? data->max_tokens : 0,
                           .source = data->source_length ? data->max_source : 0};
    for (int c = 0; c < data->column_count; c++)
        if (data->columns[c].type.dtype == DTYPE_I32 || !data->partial)
            feed.column[c] = spare_column(&feed, c);
    for (int64_t i = 0; i < data->count && status == STATUS_OK; i++) {
        Fetch what = longest;
        what.index = &i;
        status = data->fetch(data, &what, feed.column, diag);
        for (int c = 0; c < data->column_count && status == STATUS_OK; c++) {
            const Column *column = &data->columns[c];
            if (column->type.dtype != DTYPE_I32) continue;
            if (limits)
                status =
                    check_limit(&feed, &limits[c], feed.column[c], &i, NULL, 1, diag);
            else
                range_add(&ranges[c], feed.column[c],
                          (int64_t)(column_bytes(data, column, 1) / sizeof(int32_t)));
        }
    }
    feed_close(&feed);
    return status;
}

/* Whether a column holds the classes of samples. */
static bool is_class_column(const Batches *data, int column) {
    return strcmp(data->columns[column].name, DATA_LABELS) == 0 &&
           data->columns[column].type.rank == 0;
}

/* Checks one column against its limit; samples are fetched when their range is not yet
 * known, and again to name the first at fault. */
static Status check_column(const Batches *data, int column, const Limit *limit,
                           ColumnRange *ranges, Diag *diag) {
    const ColumnRange *range = &ranges[column];
    if (limit->below == 0) return STATUS_OK;
    if (is_class_column(data, column) && data->classes > 0 &&
        data->classes <= limit->below)
        return STATUS_OK; /* as the data set promises */
    if (data->below > 0 && data->below <= limit->below) return STATUS_OK; /* likewise */
    if (!range->known) {
        for (int c = 0; c < data->column_count; c++)
            ranges[c] =
                (ColumnRange){.known = true, .least = INT32_MAX, .most = INT32_MIN};
        TRY(visit_samples(data, NULL, ranges, diag));
    }
    const bool inside =
        range->least > range->most || (range->least >= 0 && range->most < limit->below);
    if (inside && (limit->skip || !range->skips)) return STATUS_OK;
    Limit *limits = memory_alloc((size_t)data->column_count + 1, sizeof *limits);
    limits[column] = *limit;
    limits[column].count =
        (int64_t)(column_bytes(data, &data->columns[column], 1) / sizeof(int32_t));
    Status status = visit_samples(data, limits, NULL, diag);
    free(limits);
    return status;
}

Status feed_check_samples(Graph *graph, Node *const *roots, int count,
                          const Batches *data, ColumnRange *ranges, Diag *diag) {
    PlanOptions options = {
        .sizes[DIM_INDEX(DIM_N)] = 1, .results = roots, .result_count = count};
    Plan *plan = NULL;
    TRY(feed_check(graph, roots, count, data, options.sizes, diag));
    Status status = plan_create(&plan, graph, &options, diag);
    if (status != STATUS_OK && data->length)
        diag_note(diag, "the longest sample of data set \"%s\" has %lld tokens",
                  data->name ? data->name : "", (long long)data->max_tokens);
    for (int i = 0; plan && i < plan->node_count && status == STATUS_OK; i++) {
        const PlanNode *node = &plan->nodes[i];
        const int column = node->node->name ? batches_column(data, node->node->name) : -1;
        Limit limit = limit_of(node);
        if (column >= 0 && is_class_column(data, column)) {
            limit.name = "a label";
            limit.skip = false; /* a sample without a label is none of a training set */
        }
        if (column >= 0) status = check_column(data, column, &limit, ranges, diag);
    }
    plan_destroy(plan);
    return status;
}

Status feed_check_labels(const Batches *data, int column, int64_t classes,
                         ColumnRange *ranges, Diag *diag) {
    const bool several = data->columns[column].type.rank > 0;
    const Limit limit = {.name = several ? data->columns[column].name : "a label",
                         .below = classes,
                         .labels = true,
                         .skip = several};
    return check_column(data, column, &limit, ranges, diag);
}
