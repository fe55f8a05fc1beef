/* Packing of matrices: see exec/linalg/gemv.h. */
#include "exec/linalg/gemv.h"

#include "ir/half.h"
#include "ir/quantised.h"

#include <string.h>

enum { QUAD = 4, OFFSET = 128 }; /* of int8 */
enum { OCTET = 8 };              /* of int4 */

static bool has_groups(StepWeights kind) {
    return kind == STEP_Q4 || kind == STEP_INT4;
}

/* ---- sizes ---- */

Matrix matrix_of(const Tensor *weight, bool transposed, StepWeights kind) {
    /* All dimensions but the last are rows, of quantised tensors the first alone. */
    const bool whole = kind >= STEP_Q8;
    const int64_t count = tensor_count(weight);
    const int64_t columns = whole        ? quantised_width(weight)
                            : transposed ? weight->dim[0]
                                         : weight->dim[weight->rank - 1];
    return (Matrix){.rows = columns > 0 ? count / columns : 0,
                    .columns = columns,
                    .kind = kind,
                    .group = has_groups(kind) ? weight->group : 0,
                    .zeros = has_groups(kind) && weight->zeros};
}

int64_t matrix_step_bytes(const Matrix *matrix) {
    const bool byte = matrix->kind == STEP_Q8 || matrix->kind == STEP_Q4;
    return byte ? PANEL_ROWS : PANEL_ROWS * (int64_t)sizeof(float);
}

int64_t matrix_head_bytes(const Matrix *matrix) {
    const int64_t scale = sizeof(uint16_t), zero = matrix->zeros ? 1 : 0;
    return has_groups(matrix->kind) ? PANEL_ROWS * (scale + zero) : 0;
}

/* Of all groups of a panel. */
static int64_t heads_bytes(const Matrix *matrix) {
    return (matrix->columns + matrix->group - 1) / matrix->group *
           matrix_head_bytes(matrix);
}

int64_t matrix_panel_bytes(const Matrix *matrix) {
    const int64_t K = matrix->columns, step = matrix_step_bytes(matrix);
    switch (matrix->kind) {
    case STEP_BF16: return (K + 1) / 2 * step;
    case STEP_INT8: return (K + QUAD - 1) / QUAD * step;
    case STEP_Q4: return (K + 1) / 2 * step + heads_bytes(matrix);
    case STEP_INT4: return (K + OCTET - 1) / OCTET * step + heads_bytes(matrix);
    default: return K * step;
    }
}

/* Rows with those of the last panel that are missing. */
static int64_t whole_rows(const Matrix *matrix) {
    return (matrix->rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
}

static size_t panels_bytes(const Matrix *matrix) {
    return (size_t)(whole_rows(matrix) / PANEL_ROWS * matrix_panel_bytes(matrix));
}

size_t matrix_bytes(const Matrix *matrix) {
    const bool scales = matrix->kind == STEP_Q8 || matrix->kind == STEP_INT8;
    return panels_bytes(matrix) +
           (scales ? (size_t)whole_rows(matrix) * sizeof(float) : 0);
}

const float *matrix_scales(const Matrix *matrix) {
    return (const float *)((const char *)matrix->data + panels_bytes(matrix));
}

/* ---- real numbers ---- */

/* Panel by panel, in pieces of 16 rows: writing goes from front to back. */
static void pack_f32(const Matrix *matrix, const Tensor *weight, float *to) {
    enum { PIECE = 64 };
    float piece[PANEL_ROWS][PIECE];
    const int64_t M = matrix->rows, K = matrix->columns;
    for (int64_t first = 0; first < M; first += PANEL_ROWS)
        for (int64_t at = 0, n; at < K; at += n) {
            const int64_t lanes = M - first < PANEL_ROWS ? M - first : PANEL_ROWS;
            n = K - at < PIECE ? K - at : PIECE;
            for (int64_t lane = 0; lane < lanes; lane++)
                tensor_read_f32(weight, (first + lane) * K + at, n, piece[lane]);
            for (int64_t k = 0; k < n; k++, to += PANEL_ROWS)
                for (int64_t lane = 0; lane < lanes; lane++) to[lane] = piece[lane][k];
        }
}

static void put_element(const Matrix *matrix, void *data, int64_t row, int64_t k,
                        float value) {
    const int64_t panel = row / PANEL_ROWS, lane = row % PANEL_ROWS;
    if (matrix->kind == STEP_F32) {
        ((float *)data)[(panel * matrix->columns + k) * PANEL_ROWS + lane] = value;
        return;
    }
    const int64_t pairs = (matrix->columns + 1) / 2;
    uint32_t *word = (uint32_t *)data + (panel * pairs + k / 2) * PANEL_ROWS + lane;
    *word |= (uint32_t)bf16_from_float(value) << (k % 2 ? 16 : 0);
}

static void pack_reals(const Matrix *matrix, const Tensor *weight, bool transposed,
                       void *data) {
    enum { PIECE = 1024 };
    if (matrix->kind == STEP_F32 && !transposed) {
        pack_f32(matrix, weight, data);
        return;
    }
    float piece[PIECE];
    const int64_t width = transposed ? matrix->rows : matrix->columns;
    const int64_t total = matrix->rows * matrix->columns;
    for (int64_t at = 0, n; at < total; at += n) { /* pieces of rows as they are stored */
        const int64_t major = at / width, minor = at % width;
        n = width - minor < PIECE ? width - minor : PIECE;
        tensor_read_f32(weight, at, n, piece);
        for (int64_t i = 0; i < n; i++)
            put_element(matrix, data, transposed ? minor + i : major,
                        transposed ? major : minor + i, piece[i]);
    }
}

/* ---- whole numbers ---- */

/* Where the panel of a row begins. */
static uint8_t *row_of_panel(const Matrix *matrix, void *data, int64_t row) {
    return (uint8_t *)data + row / PANEL_ROWS * matrix_panel_bytes(matrix);
}

static void put_scales(const Matrix *matrix, const void *scale, void *data) {
    memcpy((char *)data + panels_bytes(matrix), scale,
           (size_t)matrix->rows * sizeof(float));
}

/* Panel by panel, so that writing goes from front to back and reading along 16 rows. */
static void pack_q8(const Matrix *matrix, const Tensor *weight, void *data) {
    const int64_t M = matrix->rows, K = matrix->columns;
    const uint8_t *q = tensor_q_values(weight);
    for (int64_t first = 0; first < M; first += PANEL_ROWS) {
        const int64_t lanes = M - first < PANEL_ROWS ? M - first : PANEL_ROWS;
        uint8_t *to = row_of_panel(matrix, data, first);
        for (int64_t k = 0; k < K; k++, to += PANEL_ROWS)
            for (int64_t lane = 0; lane < lanes; lane++)
                to[lane] = q[(first + lane) * K + k];
    }
    put_scales(matrix, tensor_q_scales(weight), data);
}

void matrix_pack_int8(const Matrix *matrix, const int8_t *q, const float *scale,
                      void *data) {
    const int64_t M = matrix->rows, K = matrix->columns;
    const uint32_t offsets = OFFSET * 0x01010101u;
    for (int64_t first = 0; first < M; first += PANEL_ROWS) {
        const int64_t lanes = M - first < PANEL_ROWS ? M - first : PANEL_ROWS;
        uint8_t *to = row_of_panel(matrix, data, first);
        for (int64_t k = 0; k < K; k += QUAD)
            for (int64_t lane = 0; lane < PANEL_ROWS; lane++, to += QUAD) {
                const int8_t *from = q + (first + lane) * K + k;
                uint32_t quad = 0;
                if (lane < lanes && k + QUAD <= K)
                    memcpy(&quad, from, sizeof quad);
                else if (lane < lanes)
                    memcpy(&quad, from, (size_t)(K - k));
                quad ^= offsets;
                memcpy(to, &quad, sizeof quad);
            }
    }
    put_scales(matrix, scale, data);
}

/* The numbers of a row's group: columns k and k + 1 share a byte. Bytes of the panel
 * are a row's in every PANEL_ROWS. */
static void put_pairs(const uint8_t *pairs, int64_t columns, uint8_t *to) {
    for (int64_t i = 0; i < (columns + 1) / 2; i++) to[i * PANEL_ROWS] = pairs[i];
}

/* The same in octets: four bytes of a row in every 4 PANEL_ROWS. */
static void put_octets(const uint8_t *pairs, int64_t columns, uint8_t *to) {
    for (int64_t k = 0; k < columns; k++) {
        const int number = k % 2 ? pairs[k / 2] >> 4 : pairs[k / 2] & 15;
        uint8_t *byte = to + k / OCTET * QUAD * PANEL_ROWS + k % QUAD;
        *byte = (uint8_t)(*byte | (k % OCTET < QUAD ? number : number << 4));
    }
}

/* Groups of a q4 tensor. Its halves are bytes here: in a file they may lie anywhere. */
static void pack_groups(const Matrix *matrix, const Tensor *weight, void *data) {
    const int64_t K = matrix->columns, groups = tensor_q_groups(weight);
    const int64_t head = matrix_head_bytes(matrix), bytes = (K + 1) / 2;
    const bool octets = matrix->kind == STEP_INT4;
    const int64_t unit = octets ? OCTET : 2, step = matrix_step_bytes(matrix);
    const uint8_t *q = tensor_q_values(weight), *zero = tensor_q_zeros(weight);
    const char *scale = tensor_q_scales(weight);
    for (int64_t row = 0; row < matrix->rows; row++) {
        uint8_t *to = row_of_panel(matrix, data, row);
        const int64_t lane = row % PANEL_ROWS, half = sizeof(uint16_t);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t first = g * matrix->group, rest = K - first;
            const int64_t columns = rest < matrix->group ? rest : matrix->group;
            const uint8_t *pairs = q + row * bytes + first / 2;
            memcpy(to + lane * half, scale + (row * groups + g) * half, (size_t)half);
            if (zero) to[PANEL_ROWS * half + lane] = zero[row * groups + g];
            to += head;
            if (octets)
                put_octets(pairs, columns, to + lane * QUAD);
            else
                put_pairs(pairs, columns, to + lane);
            to += (columns + unit - 1) / unit * step;
        }
    }
}

void matrix_pack(const Matrix *matrix, const Tensor *weight, bool transposed,
                 void *data) {
    switch (matrix->kind) {
    case STEP_Q8: pack_q8(matrix, weight, data); break;
    case STEP_Q4:
    case STEP_INT4: pack_groups(matrix, weight, data); break;
    case STEP_INT8:
        matrix_pack_int8(matrix, tensor_q_values(weight), tensor_q_scales(weight), data);
        break;
    default: pack_reals(matrix, weight, transposed, data);
    }
}
