/* Vision transformers: what ViT and DeiT, and in part Swin, have in common. Private to
 * the families. */
#ifndef COMPRESS_IO_FAMILIES_VISION_H
#define COMPRESS_IO_FAMILIES_VISION_H

#include "io/families/build.h"
#include "io/families/family.h"

typedef struct Vision {
    int64_t width, layers, heads, hidden; /* hidden: of the feed-forward block */
    int64_t height_px, width_px, patch, channels;
    bool qkv_bias;
    const char *act; /* as the activation op names it */
    double eps, dropout;
} Vision;

/* Reads the keys that all share, except the width of the feed-forward block; `eps` is
 * used if the configuration has none. */
void vision_read(Builder *b, Vision *vision, double eps);

/* Starts a builder on the model and reads the configuration. */
Builder vision_begin(Vision *vision, Model *model, Diag *diag);

/* Reads image_size and patch_size: height, width and patch. Fails unless square patches
 * divide the image. */
void vision_config_image(Builder *b, Vision *vision);

/* Pixels to tokens: patches and their projection to vision->width. */
Node *vision_patches(Builder *b, const Vision *vision);

/* Pixels to tokens: patches, projection, class token and, for DeiT, distillation token,
 * position. */
Node *vision_embed(Builder *b, const Vision *vision, bool distillation);

/* Storage name of one part of the current layer. */
const char *vision_part(Builder *b, const char *name);

/* The attention of a layer with its projections. */
Node *vision_attend(Builder *b, const Vision *vision, Node *x);

/* All layers and the final norm, named as output `last_hidden_state`; for other kinds of
 * layers, those that `encode` adds. */
typedef Node *VisionLayer(Builder *b, const Vision *vision, Node *x);
Node *vision_encode(Builder *b, const Vision *vision, Node *x);
Node *vision_encode_layers(Builder *b, const Vision *vision, VisionLayer *encode,
                           Node *x);

/* Classifier `name` on the token `index`. */
Node *vision_classify(Builder *b, Role role, const char *name, Node *x, int index,
                      int64_t labels);

/* The bare model's pooler, a projection of the first token: output `pooler_output`; and
 * the rule that it is dropped if a checkpoint has none. */
void vision_pool(Builder *b, const Vision *vision, Node *x);
extern const OptionalOutput vision_optional[];

/* The pooler of a bare model, when a classifier is read. */
bool vision_spare(const char *tensor);

/* Tokens that represent masked patches are not in the graph; all other tensors keep
 * their names. */
const char *vision_rename(Arena *arena, const char *tensor);

#endif
