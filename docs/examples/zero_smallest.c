/* A plug-in for compress: sets the smallest weights of linear layers to zero.
 *
 *     cc -shared -fPIC zero_smallest.c -o zero_smallest.so -lm
 *     compress --recipe recipe.yaml --plugin ./zero_smallest.so
 */
#include <compress_plugin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The size below which `share` of the values lie. */
static float size_at(const float *w, int64_t count, double share, float *room) {
    for (int64_t i = 0; i < count; i++) room[i] = fabsf(w[i]);
    qsort(room, (size_t)count, sizeof *room, by_size);
    const int64_t at = (int64_t)(share * (double)count);
    return at < count ? room[at] : INFINITY;
}

/* One matrix; adds how many of its values became zero. */
static int zero(CompressStep *step, const CompressHost *host, size_t index, double share,
                double *zeros) {
    const int64_t count = host->weight(step, index).count;
    float *w = malloc(2 * (size_t)count * sizeof *w);
    if (!w || host->read(step, index, w)) return free(w), host->fail(step, "no memory");
    const float least = size_at(w, count, share, w + count);
    for (int64_t i = 0; i < count; i++) {
        if (fabsf(w[i]) < least) w[i] = 0;
        *zeros += w[i] == 0;
    }
    const int failed = host->write(step, index, w);
    free(w);
    return failed;
}

static int run(CompressStep *step, const CompressHost *host) {
    double zeros = 0, matrices = 0;
    for (size_t i = 0; i < host->weight_count(step); i++) {
        const CompressWeight weight = host->weight(step, i);
        if (!weight.linear || !host->names(step, "only", weight.name)) continue;
        if (zero(step, host, i, host->number(step, "share"), &zeros)) return 1;
        matrices++;
    }
    if (matrices == 0) return host->fail(step, "the model has no such linear layers");
    host->record(step, "matrices", matrices);
    host->record(step, "zeros", zeros);
    return 0;
}

static const CompressPluginOption OPTIONS[] = {
    {"share", COMPRESS_OPTION_REAL, 0, 1, 0.5, NULL, "of each matrix that becomes zero"},
    {"only", COMPRESS_OPTION_NAMES, 0, 0, 0, NULL,
     "weights of these names, * is any text"},
    {0},
};

static const CompressPluginPass PASSES[] = {
    {"zero_smallest", "set the smallest weights of linear layers to zero", NULL, OPTIONS,
     run},
    {0},
};

const CompressPlugin *compress_plugin(void) {
    static const CompressPlugin plugin = {COMPRESS_PLUGIN_INTERFACE, "zero_smallest",
                                          "1.0", PASSES};
    return &plugin;
}
