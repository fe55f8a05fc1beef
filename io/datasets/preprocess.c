/* Preprocess: resizing, cropping, values, and preprocessor_config.json. */
#include "io/datasets/preprocess.h"

#include "io/files/file.h"
#include "io/files/json.h"

#include <inttypes.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)1 << 20)
#define SIDE_MAX         8192

/* Below this size ConvNeXT's processor crops after resizing. */
#define CROP_PCT_SIDE 384

/* Keys that change pixels in ways that are not followed here. */
static const char *const NOT_FOLLOWED[] = {"do_align_long_axis",
                                           "do_color_quantize",
                                           "do_crop_margin",
                                           "do_flip_channel_order",
                                           "do_pad",
                                           "do_thumbnail",
                                           "include_top",
                                           "offset",
                                           "rescale_offset"};

/* The other keys that begin with do_: those that are read, and those that leave the
 * pixels of a classifier's pictures as they are. */
static const char *const KNOWN[] = {"do_center_crop",   "do_convert_rgb", "do_normalize",
                                    "do_reduce_labels", "do_rescale",     "do_resize"};

enum {
    NOT_FOLLOWED_COUNT = sizeof NOT_FOLLOWED / sizeof *NOT_FOLLOWED,
    KNOWN_COUNT = sizeof KNOWN / sizeof *KNOWN
};

const Preprocess preprocess_default = {.rescale = 1 / 255.0, .std = {1, 1, 1}};

/* ---- images ---- */

/* Sizes after resizing. */
static bool resized_size(const Preprocess *p, int64_t *rows, int64_t *cols) {
    const double pixels = (double)IMAGE_PIXELS_MAX;
    if (p->resize == RESIZE_NONE) return true;
    if (p->resize == RESIZE_EXACT) {
        *rows = p->rows;
        *cols = p->cols;
        return true;
    }
    const bool tall = *rows > *cols;
    const int64_t shorter = tall ? *cols : *rows, longer = tall ? *rows : *cols;
    const int64_t length = p->rows * longer / shorter;
    *rows = tall ? length : p->rows;
    *cols = tall ? p->rows : length;
    return (double)*rows * (double)*cols <= pixels;
}

bool preprocess_size(const Preprocess *p, int64_t *rows, int64_t *cols) {
    if (!resized_size(p, rows, cols)) return false;
    if (p->crop_rows == 0) return true;
    *rows = p->crop_rows;
    *cols = p->crop_cols;
    return true;
}

/* floor((size - crop) / 2): below 0 where the image is smaller. */
static int64_t crop_start(int64_t size, int64_t crop) {
    const int64_t rest = size - crop;
    return rest >= 0 ? rest / 2 : -((1 - rest) / 2);
}

static Status crop_middle(Image *out, const Image *image, int64_t rows, int64_t cols,
                          Diag *diag) {
    const int64_t channels = image->channels;
    const int64_t top = crop_start(image->rows, rows);
    const int64_t left = crop_start(image->cols, cols);
    const int64_t first = left < 0 ? -left : 0;
    const int64_t end = left + cols > image->cols ? image->cols - left : cols;
    TRY(image_create(out, rows, cols, channels, diag));
    memset(out->pixels, 0, (size_t)(rows * cols * channels));
    for (int64_t y = 0; y < rows; y++) {
        const int64_t from = y + top;
        if (from < 0 || from >= image->rows) continue;
        memcpy(out->pixels + (y * cols + first) * channels,
               image->pixels + (from * image->cols + left + first) * channels,
               (size_t)((end - first) * channels));
    }
    return STATUS_OK;
}

Status preprocess_image(Image *out, const Image *image, const Preprocess *p,
                        const char *path, Diag *diag) {
    int64_t rows = image->rows, cols = image->cols;
    Image resized = {0};
    *out = (Image){0};
    if (!resized_size(p, &rows, &cols))
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "resizing makes %" PRId64 " x %" PRId64 " pixels of %" PRId64
                         " x %" PRId64 ", which are too many",
                         cols, rows, image->cols, image->rows);
    if (p->crop_rows == 0)
        return resample_image(out, image, rows, cols, (ResampleKind)p->resample, diag);
    TRY(resample_image(&resized, image, rows, cols, (ResampleKind)p->resample, diag));
    Status status = crop_middle(out, &resized, p->crop_rows, p->crop_cols, diag);
    image_free(&resized);
    return status;
}

float preprocess_value(const Preprocess *p, int64_t channel, int byte) {
    return (float)((byte * p->rescale - p->mean[channel]) / p->std[channel]);
}

/* ---- the file ---- */

/* The file that is read. */
typedef struct ProcessorFile {
    const Tree *root;
    const char *path;
    Diag *diag;
} ProcessorFile;

static Status config_fail(const ProcessorFile *c, const char *key, const char *expected,
                          const Tree *found) {
    Text text = {0};
    tree_describe(&text, found);
    Status status = diag_fail(c->diag, STATUS_FORMAT, LOC_FILE(c->path), key,
                              "expected %s, found %s", expected, text.data);
    text_free(&text);
    return status;
}

static Status read_bool(const ProcessorFile *c, const char *key, bool *value) {
    const Tree *found = tree_get_nonnull(c->root, key);
    if (!found) return STATUS_OK;
    if (found->kind != TREE_BOOL) return config_fail(c, key, "true or false", found);
    *value = found->boolean;
    return STATUS_OK;
}

static Status side_of(const ProcessorFile *c, const char *key, const Tree *value,
                      int64_t *out) {
    if (value->kind != TREE_INT || value->integer < 1 || value->integer > SIDE_MAX)
        return config_fail(c, key, "a number of pixels from 1 to 8192", value);
    *out = value->integer;
    return STATUS_OK;
}

/* `height` and `width` of a map, or one number for both. */
static Status read_sides(const ProcessorFile *c, const char *key, const Tree *size,
                         int64_t *rows, int64_t *cols) {
    const Tree *height = tree_get_nonnull(size, "height"),
               *width = tree_get_nonnull(size, "width");
    if (size->kind == TREE_MAP && (!height || !width))
        return config_fail(c, key, "a number, {height, width} or {shortest_edge}", size);
    TRY(side_of(c, key, height ? height : size, rows));
    return side_of(c, key, width ? width : size, cols);
}

/* Three numbers, or one for all channels. */
static Status read_triple(const ProcessorFile *c, const char *key, double least,
                          double out[3]) {
    const Tree *found = tree_get_nonnull(c->root, key);
    if (!found) return STATUS_OK;
    const bool list = found->kind == TREE_LIST;
    const Tree *item = list ? found->first : found;
    if (list && found->count != 1 && found->count != 3)
        return config_fail(c, key, "one number, or three", found);
    for (int i = 0; i < 3; i++) {
        if (!tree_number(item, &out[i]))
            return config_fail(c, key, "one number, or three", item);
        if (out[i] < least || out[i] > 1e6)
            return config_fail(c, key,
                               least > 0 ? "numbers from 1e-6 to 1e6"
                                         : "numbers from -1e6 to 1e6",
                               item);
        if (list && found->count == 3) item = item->next;
    }
    return STATUS_OK;
}

static Status read_filter(const ProcessorFile *c, Preprocess *out) {
    const Tree *found = tree_get_nonnull(c->root, "resample");
    if (!found) return STATUS_OK;
    if (found->kind == TREE_INT && found->integer == 2) {
        out->resample = RESAMPLE_BILINEAR;
        return STATUS_OK;
    }
    if (found->kind == TREE_INT && found->integer == 3) {
        out->resample = RESAMPLE_BICUBIC;
        return STATUS_OK;
    }
    return config_fail(c, "resample", "2 (bilinear) or 3 (bicubic)", found);
}

/* ConvNeXT: small images are resized to more than the size and cropped. */
static void apply_crop_pct(Preprocess *out, double share) {
    const int64_t side = out->rows;
    out->cols = side;
    if (side >= CROP_PCT_SIDE) {
        out->resize = RESIZE_EXACT;
        return;
    }
    out->resize = RESIZE_SHORTEST;
    out->rows = (int64_t)((double)side / share);
    out->crop_rows = out->crop_cols = side;
}

static Status read_size(const ProcessorFile *c, Preprocess *out) {
    const Tree *size = tree_get_nonnull(c->root, "size"),
               *pct = tree_get_nonnull(c->root, "crop_pct");
    const Tree *edge = tree_get_nonnull(size, "shortest_edge");
    double share = 0;
    if (pct && (!tree_number(pct, &share) || share < 0.1 || share > 1))
        return config_fail(c, "crop_pct", "a number from 0.1 to 1", pct);
    out->resize = RESIZE_EXACT;
    if (!size) return STATUS_OK;
    if (edge && tree_get_nonnull(size, "longest_edge"))
        return config_fail(c, "size.longest_edge", "none beside shortest_edge",
                           tree_get_nonnull(size, "longest_edge"));
    if (!edge && !(pct && size->kind == TREE_INT))
        return read_sides(c, "size", size, &out->rows, &out->cols);
    TRY(side_of(c, "size", edge ? edge : size, &out->rows));
    out->resize = RESIZE_SHORTEST;
    if (pct) apply_crop_pct(out, share);
    return STATUS_OK;
}

static Status read_values(const ProcessorFile *c, Preprocess *out) {
    const Tree *factor = tree_get_nonnull(c->root, "rescale_factor");
    bool rescale = true, normalize = true;
    TRY(read_bool(c, "do_rescale", &rescale));
    TRY(read_bool(c, "do_normalize", &normalize));
    if (factor && !(tree_number(factor, &out->rescale) && out->rescale > 0))
        return config_fail(c, "rescale_factor", "a number above 0", factor);
    if (!rescale) out->rescale = 1;
    if (!normalize) return STATUS_OK;
    for (int i = 0; i < 3; i++) out->mean[i] = out->std[i] = 0.5;
    TRY(read_triple(c, "image_mean", -1e6, out->mean));
    return read_triple(c, "image_std", 1e-6, out->std);
}

static Status read_background(const ProcessorFile *c, Preprocess *out) {
    const Tree *found = tree_get_nonnull(c->root, "background");
    const char *name = found && found->kind == TREE_STRING ? found->string : "";
    if (!found) return STATUS_OK;
    if (strcmp(name, "white") != 0 && strcmp(name, "black") != 0)
        return config_fail(c, "background", "\"white\" or \"black\"", found);
    out->background = strcmp(name, "black") == 0 ? IMAGE_BLACK : IMAGE_WHITE;
    return STATUS_OK;
}

static bool is_one_of(const char *key, const char *const *names, int count) {
    bool found = false;
    for (int i = 0; i < count; i++) found = found || strcmp(key, names[i]) == 0;
    return found;
}

/* Refuses what would change pixels, and warns of what may. */
static Status check_keys(const ProcessorFile *c) {
    for (int i = 0; i < NOT_FOLLOWED_COUNT; i++) {
        bool on = false;
        TRY(read_bool(c, NOT_FOLLOWED[i], &on));
        if (on)
            return config_fail(c, NOT_FOLLOWED[i],
                               "false, as what it does to pixels is not done here",
                               tree_get(c->root, NOT_FOLLOWED[i]));
    }
    for (const Tree *value = c->root->first; value; value = value->next) {
        const char *key = value->key;
        if (strncmp(key, "do_", 3) != 0 || value->kind == TREE_NULL ||
            is_one_of(key, NOT_FOLLOWED, NOT_FOLLOWED_COUNT) ||
            is_one_of(key, KNOWN, KNOWN_COUNT))
            continue;
        const char *near = name_nearest(key, KNOWN, KNOWN_COUNT);
        diag_warn(c->diag, LOC_FILE(c->path), key,
                  "not known here, and not followed%s%s%s",
                  near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    }
    return STATUS_OK;
}

static Status read_config(Preprocess *out, const Tree *root, const char *path,
                          Diag *diag) {
    const ProcessorFile config = {root, path, diag};
    if (root->kind != TREE_MAP) return config_fail(&config, NULL, "a map", root);
    bool resize = true, crop = false;
    TRY(check_keys(&config));
    *out = preprocess_default;
    out->rows = out->cols = 224;
    TRY(read_bool(&config, "do_resize", &resize));
    if (resize) TRY(read_filter(&config, out));
    if (resize) TRY(read_size(&config, out));
    TRY(read_bool(&config, "do_center_crop", &crop));
    if (crop) {
        const Tree *size = tree_get_nonnull(root, "crop_size");
        out->crop_rows = out->crop_cols = 224;
        if (size)
            TRY(read_sides(&config, "crop_size", size, &out->crop_rows, &out->crop_cols));
    }
    TRY(read_background(&config, out));
    return read_values(&config, out);
}

Status preprocess_read(Preprocess *out, const char *path, Arena *arena, Diag *diag) {
    Tree *root;
    if (path_is_folder(path)) path = path_join(arena, path, "preprocessor_config.json");
    TRY(json_read(&root, arena, path, CONFIG_BYTES_MAX, diag));
    return read_config(out, root, path, diag);
}

Status preprocess_parse(Preprocess *out, const char *name, const char *text,
                        size_t length, Arena *arena, Diag *diag) {
    Tree *root;
    TRY(json_parse(&root, arena, name, text, length, diag));
    return read_config(out, root, name, diag);
}

/* ---- writing ---- */

static void put_sides(Arena *arena, Tree *map, const char *key, int64_t rows,
                      int64_t cols) {
    Tree *sides = tree_put_map(arena, map, key);
    tree_put_int(arena, sides, "height", rows);
    tree_put_int(arena, sides, "width", cols);
}

static void put_values(Arena *arena, Tree *map, const char *key, const double *value,
                       int64_t count) {
    Tree *list = tree_put_list(arena, map, key);
    for (int64_t c = 0; c < count; c++) tree_add_real(arena, list, value[c]);
}

static void put_size(Arena *arena, Tree *map, const Preprocess *p) {
    const bool crop = p->crop_rows > 0;
    tree_put_bool(arena, map, "do_resize", p->resize != RESIZE_NONE);
    if (p->resize == RESIZE_SHORTEST)
        tree_put_int(arena, tree_put_map(arena, map, "size"), "shortest_edge", p->rows);
    else if (p->resize == RESIZE_EXACT)
        put_sides(arena, map, "size", p->rows, p->cols);
    if (p->resize != RESIZE_NONE)
        tree_put_int(arena, map, "resample", p->resample == RESAMPLE_BICUBIC ? 3 : 2);
    tree_put_bool(arena, map, "do_center_crop", crop);
    if (crop) put_sides(arena, map, "crop_size", p->crop_rows, p->crop_cols);
}

const char *preprocess_text(Arena *arena, const Preprocess *preprocess,
                            int64_t channels) {
    Text text = {0};
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    const char *class = preprocess->resize == RESIZE_SHORTEST ? "CLIPImageProcessor"
                        : preprocess->crop_rows > 0           ? "DeiTImageProcessor"
                                                              : "ViTImageProcessor";
    tree_put_string(arena, map, "image_processor_type", class);
    put_size(arena, map, preprocess);
    tree_put_bool(arena, map, "do_rescale", true);
    tree_put_real(arena, map, "rescale_factor", preprocess->rescale);
    tree_put_bool(arena, map, "do_normalize", true);
    put_values(arena, map, "image_mean", preprocess->mean, channels);
    put_values(arena, map, "image_std", preprocess->std, channels);
    if (channels == 1) tree_put_bool(arena, map, "do_convert_rgb", false);
    if (preprocess->background == IMAGE_BLACK)
        tree_put_string(arena, map, "background", "black");
    tree_print_json(&text, map, 2);
    const char *copy = arena_strdup(arena, text.data);
    text_free(&text);
    return copy;
}
