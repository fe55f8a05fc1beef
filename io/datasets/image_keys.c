/* Keys of image data sets, and what becomes of images by them: see
 * io/datasets/image_set.h. */
#include "io/datasets/image_set.h"

Status image_keys_check(void *options, Arena *arena, Loc at, Diag *diag) {
    ImageKeys *keys = options;
    if (keys->resize.count > 2)
        return diag_fail(diag, STATUS_RECIPE, at, "resize",
                         "expected one or two numbers, found %d", keys->resize.count);
    if (keys->center_crop.count > 2)
        return diag_fail(diag, STATUS_RECIPE, at, "center_crop",
                         "expected one or two numbers, found %d",
                         keys->center_crop.count);
    return augment_bind(&keys->changes, keys->augment, arena, diag);
}

static Status take_values(double out[3], const RealList *list, const char *key,
                          int64_t channels, Loc at, Diag *diag) {
    if (list->count == 0) return STATUS_OK;
    if (list->count != 1 && list->count != channels)
        return diag_fail(diag, STATUS_RECIPE, at, key,
                         "expected one value, or one for each of the %d channels, found "
                         "%d",
                         (int)channels, list->count);
    for (int c = 0; c < 3; c++) out[c] = list->items[list->count == 1 ? 0 : c % channels];
    return STATUS_OK;
}

static void take_sizes(Preprocess *out, const ImageKeys *keys) {
    const IntList *resize = &keys->resize, *crop = &keys->center_crop;
    if (resize->count > 0) {
        out->resize = resize->count == 1 ? RESIZE_SHORTEST : RESIZE_EXACT;
        out->rows = resize->items[0];
        out->cols = resize->items[resize->count - 1];
        out->crop_rows = out->crop_cols = 0;
    }
    if (crop->count > 0) {
        out->crop_rows = crop->items[0];
        out->crop_cols = crop->items[crop->count - 1];
    }
}

Status image_keys_preprocess(Preprocess *out, const ImageKeys *keys, Arena *arena, Loc at,
                             Diag *diag) {
    const int64_t channels = keys->color == IMAGE_GRAY ? 1 : 3;
    *out = preprocess_default;
    if (keys->preprocessor) TRY(preprocess_read(out, keys->preprocessor, arena, diag));
    take_sizes(out, keys);
    if (keys->resample > 0) out->resample = keys->resample - 1;
    if (keys->rescale > 0) out->rescale = keys->rescale;
    TRY(take_values(out->mean, &keys->mean, "mean", channels, at, diag));
    return take_values(out->std, &keys->std, "std", channels, at, diag);
}
