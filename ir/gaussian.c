/* Gaussian: see gaussian.h. */
#include "ir/gaussian.h"

#include <math.h>
#include <string.h>

/* Elements handled together. */
enum { CHUNK = 512 };

static const char *const FORMS[] = {"diagonal", "low_rank", "kron"};

const char *gaussian_form_name(GaussianForm form) {
    return FORMS[form];
}

GaussianForm gaussian_form_parse(const char *name) {
    int form = 0;
    while (form < GAUSSIAN_FORM_COUNT && strcmp(FORMS[form], name) != 0) form++;
    return (GaussianForm)form;
}

int gaussian_parts(const Gaussian *g, GaussianPart out[GAUSSIAN_PARTS_MAX]) {
    Gaussian *own = (Gaussian *)(uintptr_t)g; /* callers of const Gaussians only read */
    int count = 0;
    out[count++] = (GaussianPart){"mean", &own->mean};
    if (g->form != GAUSSIAN_KRON)
        out[count++] = (GaussianPart){"diagonal", &own->diagonal};
    if (g->form == GAUSSIAN_LOW_RANK)
        out[count++] = (GaussianPart){"factor", &own->factor};
    if (g->form == GAUSSIAN_KRON) {
        out[count++] = (GaussianPart){"row", &own->row};
        out[count++] = (GaussianPart){"column", &own->column};
    }
    return count;
}

/* ---- making, copying ---- */

Gaussian *gaussian_create(Arena *arena, GaussianForm form, DType dtype,
                          const Tensor *like, int64_t samples, const char *origin) {
    Gaussian *g = ARENA_NEW(arena, Gaussian);
    g->form = form;
    g->origin = arena_strdup(arena, origin);
    g->mean = tensor_shape(dtype, like->rank, like->dim);
    if (form != GAUSSIAN_KRON) g->diagonal = g->mean;
    if (form == GAUSSIAN_LOW_RANK)
        g->factor = tensor_shape(dtype, 2, (int64_t[]){samples, tensor_count(like)});
    if (form == GAUSSIAN_KRON) {
        g->row = tensor_shape(dtype, 2, (int64_t[]){like->dim[0], like->dim[0]});
        g->column = tensor_shape(dtype, 2, (int64_t[]){like->dim[1], like->dim[1]});
    }
    return g;
}

Status gaussian_allocate(Gaussian *g, Diag *diag) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    for (int i = 0; i < count; i++)
        if (!part[i].tensor->buf)
            TRY(tensor_create(part[i].tensor, part[i].tensor->dtype, part[i].tensor->rank,
                              part[i].tensor->dim, diag));
    return STATUS_OK;
}

Gaussian *gaussian_copy(Arena *arena, const Gaussian *g) {
    if (!g) return NULL;
    Gaussian *copy = ARENA_NEW(arena, Gaussian);
    *copy = *g;
    copy->origin = arena_strdup(arena, g->origin);
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(copy, part);
    for (int i = 0; i < count; i++) buf_retain(part[i].tensor->buf);
    return copy;
}

void gaussian_release(Gaussian *g) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = g ? gaussian_parts(g, part) : 0;
    for (int i = 0; i < count; i++)
        tensor_drop_data(part[i].tensor, part[i].tensor->dtype);
}

bool gaussian_has_data(const Gaussian *g) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    for (int i = 0; i < count; i++)
        if (!part[i].tensor->buf) return false;
    return true;
}

/* ---- shapes ---- */

static bool is_matrix(const Tensor *tensor, int64_t rows, int64_t columns) {
    return tensor->rank == 2 && tensor->dim[0] == rows && tensor->dim[1] == columns;
}

static bool same_dtypes(const Gaussian *g) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    const DType dtype = g->mean.dtype;
    for (int i = 0; i < count; i++)
        if (part[i].tensor->dtype != dtype ||
            (part[i].tensor->buf != NULL) != (g->mean.buf != NULL))
            return false;
    return dtype == DTYPE_F32 || dtype == DTYPE_F64;
}

bool gaussian_fits(const Gaussian *g, const Tensor *storage) {
    if (!dtype_is_real(storage->dtype) || !same_dtypes(g) ||
        !tensor_same_shape(&g->mean, storage))
        return false;
    switch (g->form) {
    case GAUSSIAN_DIAGONAL: return tensor_same_shape(&g->diagonal, storage);
    case GAUSSIAN_LOW_RANK:
        return tensor_same_shape(&g->diagonal, storage) && g->factor.rank == 2 &&
               g->factor.dim[0] >= 1 && g->factor.dim[0] <= GAUSSIAN_SAMPLES_MAX &&
               g->factor.dim[1] == tensor_count(storage);
    case GAUSSIAN_KRON:
        return storage->rank == 2 &&
               is_matrix(&g->row, storage->dim[0], storage->dim[0]) &&
               is_matrix(&g->column, storage->dim[1], storage->dim[1]);
    case GAUSSIAN_FORM_COUNT: break;
    }
    return false;
}

int64_t gaussian_samples(const Gaussian *g) {
    return g->form == GAUSSIAN_LOW_RANK ? g->factor.dim[0] : 0;
}

size_t gaussian_bytes(const Gaussian *g) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += tensor_bytes(part[i].tensor);
    return bytes;
}

/* ---- numbers ---- */

void gaussian_mean_f64(const Gaussian *g, int64_t first, int64_t count, double *out) {
    tensor_read_f64(&g->mean, first, count, out);
}

void gaussian_mean_f32(const Gaussian *g, int64_t first, int64_t count, float *out) {
    tensor_read_f32(&g->mean, first, count, out);
}

/* row[i, i] column[j, j] of element i m + j. */
static double kron_variance(const Gaussian *g, int64_t at) {
    const int64_t n = g->row.dim[0], m = g->column.dim[0];
    double row, column;
    tensor_read_f64(&g->row, at / m * (n + 1), 1, &row);
    tensor_read_f64(&g->column, at % m * (m + 1), 1, &column);
    return row * column;
}

/* Adds the squares of the factor's rows. */
static void add_squares(const Gaussian *g, int64_t first, int64_t count, double *out) {
    double part[CHUNK];
    for (int64_t k = 0; k < g->factor.dim[0]; k++)
        for (int64_t at = 0; at < count; at += CHUNK) {
            const int64_t n = count - at < CHUNK ? count - at : CHUNK;
            tensor_read_f64(&g->factor, k * g->factor.dim[1] + first + at, n, part);
            for (int64_t i = 0; i < n; i++) out[at + i] += part[i] * part[i];
        }
}

void gaussian_variance_f64(const Gaussian *g, int64_t first, int64_t count, double *out) {
    if (g->form == GAUSSIAN_KRON) {
        for (int64_t i = 0; i < count; i++) out[i] = kron_variance(g, first + i);
        return;
    }
    tensor_read_f64(&g->diagonal, first, count, out);
    if (g->form == GAUSSIAN_LOW_RANK) add_squares(g, first, count, out);
}

void gaussian_variance_f32(const Gaussian *g, int64_t first, int64_t count, float *out) {
    double part[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        gaussian_variance_f64(g, first + at, n, part);
        for (int64_t i = 0; i < n; i++) out[at + i] = (float)part[i];
    }
}

static bool has_negative(const Tensor *tensor) {
    double part[CHUNK];
    const int64_t total = tensor_count(tensor);
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = total - at < CHUNK ? total - at : CHUNK;
        tensor_read_f64(tensor, at, n, part);
        for (int64_t i = 0; i < n; i++)
            if (part[i] < 0) return true;
    }
    return false;
}

/* Whether a covariance has a[i, j] = a[j, i] and no negative variance. */
static bool is_symmetric(const Tensor *tensor) {
    const int64_t n = tensor->dim[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double a, b;
            tensor_read_f64(tensor, i * n + j, 1, &a);
            tensor_read_f64(tensor, j * n + i, 1, &b);
            if (a != b || (i == j && a < 0)) return false;
        }
    return true;
}

Status gaussian_check(const Gaussian *g, const char *name, Status status, Diag *diag) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    for (int i = 0; i < count; i++)
        if (tensor_find_nonfinite(part[i].tensor) >= 0)
            return diag_fail(diag, status, LOC_NONE, name,
                             "expected a Gaussian of finite numbers, found one that is "
                             "not finite");
    if (g->form != GAUSSIAN_KRON && has_negative(&g->diagonal))
        return diag_fail(diag, status, LOC_NONE, name,
                         "expected variances from 0 on, found a negative one");
    if (g->form == GAUSSIAN_KRON && (!is_symmetric(&g->row) || !is_symmetric(&g->column)))
        return diag_fail(diag, status, LOC_NONE, name,
                         "expected symmetric covariances of rows and columns with "
                         "variances from 0 on");
    return STATUS_OK;
}

/* ---- keeping a part ---- */

/* The part of a tensor of the storage's shape, `lead` times in a row. */
static Status keep_axis(Tensor *out, const Tensor *in, const Tensor *like, int64_t lead,
                        int axis, const int64_t *keep, int64_t count, Diag *diag) {
    for (int i = 0; i < axis; i++) lead *= like->dim[i];
    return tensor_keep(out, in, lead, like->dim[axis], keep, count, diag);
}

static Status keep_parts(Gaussian *cut, const Gaussian *g, int axis, const int64_t *keep,
                         int64_t count, Diag *diag) {
    TRY(keep_axis(&cut->mean, &g->mean, &g->mean, 1, axis, keep, count, diag));
    if (g->form == GAUSSIAN_KRON) { /* rows and columns of the axis's covariance */
        const Tensor *in = axis == 0 ? &g->row : &g->column;
        Tensor *out = axis == 0 ? &cut->row : &cut->column;
        const int64_t n = in->dim[0];
        Tensor tall = tensor_shape(in->dtype, 2, (int64_t[]){count, n});
        TRY(tensor_keep(&tall, in, 1, n, keep, count, diag));
        const Status status = tensor_keep(out, &tall, count, n, keep, count, diag);
        tensor_release(&tall);
        return status;
    }
    TRY(keep_axis(&cut->diagonal, &g->diagonal, &g->mean, 1, axis, keep, count, diag));
    if (g->form == GAUSSIAN_DIAGONAL) return STATUS_OK;
    return keep_axis(&cut->factor, &g->factor, &g->mean, g->factor.dim[0], axis, keep,
                     count, diag);
}

/* The shapes after a cut; of kron, the covariance that stays is shared. */
static Gaussian cut_shapes(const Gaussian *g, int axis, int64_t count) {
    Gaussian cut = {.form = g->form, .origin = g->origin};
    cut.mean = tensor_shape(g->mean.dtype, g->mean.rank, g->mean.dim);
    cut.mean.dim[axis] = count;
    if (g->form != GAUSSIAN_KRON) cut.diagonal = cut.mean;
    if (g->form == GAUSSIAN_LOW_RANK)
        cut.factor = tensor_shape(g->factor.dtype, 2,
                                  (int64_t[]){g->factor.dim[0], tensor_count(&cut.mean)});
    if (g->form == GAUSSIAN_KRON) {
        const Tensor square = tensor_shape(g->mean.dtype, 2, (int64_t[]){count, count});
        cut.row = axis == 0 ? square : tensor_retain(&g->row);
        cut.column = axis == 1 ? square : tensor_retain(&g->column);
    }
    return cut;
}

Status gaussian_keep(Gaussian *g, int axis, const int64_t *keep, int64_t count,
                     Diag *diag) {
    Gaussian cut = cut_shapes(g, axis, count);
    const Status status = keep_parts(&cut, g, axis, keep, count, diag);
    gaussian_release(status == STATUS_OK ? g : &cut);
    if (status == STATUS_OK) *g = cut;
    return status;
}

bool gaussian_reshape(Gaussian *g, int rank, const int64_t *dim) {
    if (g->form == GAUSSIAN_KRON) return false;
    Tensor *const tensors[] = {&g->mean, &g->diagonal};
    for (int i = 0; i < 2; i++) {
        tensors[i]->rank = rank;
        memcpy(tensors[i]->dim, dim, (size_t)rank * sizeof *dim);
    }
    return true;
}

/* ---- averaging ---- */

static bool can_average(Gaussian *const *from, int count) {
    for (int i = 0; i < count; i++)
        if (!from[i] || from[i]->form == GAUSSIAN_KRON ||
            from[i]->form != from[0]->form ||
            !tensor_same_shape(&from[i]->mean, &from[0]->mean) ||
            gaussian_samples(from[i]) != gaussian_samples(from[0]) ||
            strcmp(from[i]->origin, from[0]->origin) != 0)
            return false;
    return true;
}

static const Tensor *nth_part(const Gaussian *g, int i) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    gaussian_parts(g, part);
    return part[i].tensor;
}

/* Part `part` of all, added and multiplied by `by`, as that of from[0]. */
static Status average_part(Gaussian *const *from, int count, int part, double by,
                           Diag *diag) {
    Tensor *out = (Tensor *)(uintptr_t)nth_part(from[0], part);
    double sum[CHUNK], one[CHUNK];
    const int64_t total = tensor_count(out);
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = total - at < CHUNK ? total - at : CHUNK;
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < count; i++) {
            tensor_read_f64(nth_part(from[i], part), at, n, one);
            for (int64_t k = 0; k < n; k++) sum[k] += one[k];
        }
        for (int64_t k = 0; k < n; k++) sum[k] *= by;
        TRY(tensor_write_f64(out, at, n, sum, diag));
    }
    return STATUS_OK;
}

Status gaussian_average(Gaussian *const *from, int count, bool *done, Diag *diag) {
    enum { MEAN, DIAGONAL, FACTOR };
    *done = can_average(from, count);
    if (!*done || !gaussian_has_data(from[0])) return STATUS_OK;
    const double share = 1.0 / count;
    TRY(average_part(from, count, MEAN, share, diag));
    TRY(average_part(from, count, DIAGONAL, share * share, diag));
    if (from[0]->form == GAUSSIAN_DIAGONAL) return STATUS_OK;
    return average_part(from, count, FACTOR, share, diag);
}

void gaussian_describe(Text *text, const Gaussian *g) {
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    const int count = gaussian_parts(g, part);
    text_add(text, "%s %s", gaussian_form_name(g->form), g->origin);
    for (int i = 0; i < count; i++) {
        char hash[HASH_TEXT_BYTES];
        tensor_hash(part[i].tensor, hash);
        text_add(text, " %s", hash);
    }
    text_add(text, "\n");
}
