/* Truncated SVD of a 30,522 x 768 matrix (BERT's word embeddings) to rank 128.
 *
 *     bench_tsvd make real|flat|steep FILE
 *     bench_tsvd time FILE OPTIMUM THREADS REPEATS
 *
 * `make` writes a matrix of f32 and prints the least relative error of rank 128. `time`
 * prints the median and best time of a decomposition, its relative error with the part it
 * exceeds OPTIMUM by, and the peak of memory beyond the matrix and the factors. */
#include "exec/linalg/tsvd.h"
#include "bench/timing.h"
#include "tests/exec/spectra.h"

#include <sys/resource.h>

enum { ROWS = 30522, WIDTH = 768, RANK = 128 };

static double peak_mb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static int make(const char *kind, const char *path, float *a) {
    spectra_fill(a, ROWS, WIDTH, kind, 1);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(a, sizeof *a, (size_t)ROWS * WIDTH, file) != ROWS * WIDTH ||
        fclose(file) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        return 1;
    }
    printf("%.12e\n", spectra_optimum(a, ROWS, WIDTH, RANK) /
                          spectra_error(a, ROWS, WIDTH, NULL, NULL, 0));
    return 0;
}

static int measure(const Tensor *e, double optimum, int threads, int repeats,
                   Diag *diag) {
    double *seconds = spectra_new(repeats);
    const double before = peak_mb();
    double peak = 0;
    Tsvd result = {0};
    for (int i = -1; i < repeats; i++) { /* the first warms up */
        tsvd_release(&result);
        const double start = now();
        if (tsvd(&result, e, RANK, threads, diag) != STATUS_OK) {
            diag_print(diag, stderr);
            return 1;
        }
        if (i >= 0) seconds[i] = now() - start;
        if (i < 0)
            peak = peak_mb() - before -
                   (double)(tensor_bytes(&result.left) + tensor_bytes(&result.right)) /
                       (1 << 20);
    }
    sort_numbers(seconds, (size_t)repeats);
    const float *a = tensor_data(e);
    const double norm = spectra_error(a, ROWS, WIDTH, NULL, NULL, 0);
    const double error = spectra_error(a, ROWS, WIDTH, tensor_data(&result.left),
                                       tensor_data(&result.right), RANK);
    printf("median %.3f s, best %.3f s, error %.6e, excess %.1e, predicted %.1e off, "
           "memory %.0f MB, %s\n",
           seconds[repeats / 2], seconds[0], error / norm, error / norm / optimum - 1,
           sqrt(result.error) / error - 1, peak, result.double_precision ? "f64" : "f32");
    tsvd_release(&result);
    free(seconds);
    return 0;
}

int main(int argc, char **argv) {
    blas_init();
    Diag *diag = diag_create();
    Tensor e;
    void *data = NULL;
    if (tensor_create(&e, DTYPE_F32, 2, (int64_t[]){ROWS, WIDTH}, diag) != STATUS_OK ||
        tensor_writable(&e, &data, diag) != STATUS_OK)
        return 1;
    if (argc == 4 && strcmp(argv[1], "make") == 0) return make(argv[2], argv[3], data);
    if (argc != 6 || strcmp(argv[1], "time") != 0) {
        fprintf(stderr,
                "usage: %s make real|flat|steep FILE\n"
                "       %s time FILE OPTIMUM THREADS REPEATS\n",
                argv[0], argv[0]);
        return 2;
    }
    FILE *file = fopen(argv[2], "rb");
    if (!file || fread(data, sizeof(float), (size_t)ROWS * WIDTH, file) != ROWS * WIDTH) {
        fprintf(stderr, "cannot read %s\n", argv[2]);
        return 1;
    }
    fclose(file);
    return measure(&e, atof(argv[3]), atoi(argv[4]), atoi(argv[5]), diag);
}
