/* A plug-in for compress: removes the layers whose matrices weigh least.
 *
 *     cc -shared -fPIC drop_light_layers.c -o drop_light_layers.so -lm
 *     compress --recipe recipe.yaml --plugin ./drop_light_layers.so
 *
 * A layer's weight is the root of the mean square over its linear layers. Choosing is
 * this file's part; what removal means for the graph of each family is the pass
 * remove_layer's.
 */
#include <compress_plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 512 };

typedef struct Layer {
    double squares, count;
    int gone;
} Layer;

/* Adds a matrix to its layer. */
static int add(CompressStep *step, const CompressHost *host, size_t index,
               Layer *layers) {
    const CompressWeight weight = host->weight(step, index);
    float *w = malloc((size_t)weight.count * sizeof *w);
    if (!w || host->read(step, index, w)) return free(w), host->fail(step, "no memory");
    for (int64_t i = 0; i < weight.count; i++)
        layers[weight.layer].squares += (double)w[i] * w[i];
    layers[weight.layer].count += (double)weight.count;
    free(w);
    return 0;
}

/* The lightest of the layers that are there. */
static int lightest(const Layer *layers) {
    int best = -1;
    for (int i = 0; i < LAYERS_MAX; i++) {
        if (layers[i].count == 0 || layers[i].gone) continue;
        if (best < 0 || layers[i].squares / layers[i].count <
                            layers[best].squares / layers[best].count)
            best = i;
    }
    return best;
}

static int run(CompressStep *step, const CompressHost *host) {
    Layer layers[LAYERS_MAX] = {0};
    const char *stack = host->text(step, "stack");
    if (!stack) return host->fail(step, "expected the name of a stack");
    for (size_t i = 0; i < host->weight_count(step); i++) {
        const CompressWeight weight = host->weight(step, i);
        if (!weight.linear || weight.layer < 0 || weight.layer >= LAYERS_MAX ||
            !weight.stack || strcmp(weight.stack, stack) != 0)
            continue;
        if (add(step, host, i, layers)) return 1;
    }
    for (int left = (int)host->number(step, "count"); left > 0; left--) {
        const int layer = lightest(layers);
        if (layer < 0) return host->fail(step, "the stack has not so many layers");
        layers[layer].gone = 1;
    }
    char options[64 + 5 * LAYERS_MAX] = "";
    size_t end = 0;
    for (int i = 0; i < LAYERS_MAX; i++)
        if (layers[i].gone)
            end += (size_t)snprintf(options + end, sizeof options - end, "%s%d",
                                    end ? ", " : "{drop: [", i);
    snprintf(options + end, sizeof options - end, "], stack: \"%.40s\"}", stack);
    return host->apply(step, "remove_layer", options);
}

static const CompressPluginOption OPTIONS[] = {
    {"count", COMPRESS_OPTION_INTEGER, 1, LAYERS_MAX, 1, NULL, "layers to remove"},
    {"stack", COMPRESS_OPTION_TEXT, 0, 0, 0, "encoder", "of these layers"},
    {0},
};

static const CompressPluginPass PASSES[] = {
    {"drop_light_layers", "remove the layers whose matrices weigh least", NULL, OPTIONS,
     run},
    {0},
};

const CompressPlugin *compress_plugin(void) {
    static const CompressPlugin plugin = {COMPRESS_PLUGIN_INTERFACE, "drop_light_layers",
                                          "1.0", PASSES};
    return &plugin;
}
