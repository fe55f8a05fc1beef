/* Structure: what a model's layers are made of, small enough for a report. */
#ifndef COMPRESS_SESSION_STRUCTURE_H
#define COMPRESS_SESSION_STRUCTURE_H

#include "ir/model.h"

/* The layers of every stack, as a new map:
 *
 *     {"stacks": [{"name": "encoder", "layers": [
 *         {"original": 5, "heads": 4, "cross_heads": 4, "ffn": 128, "recurrence": 64,
 *          "shares": 0, "exit": true, "parameters": 50240}, ...]}]}
 *
 * Numbers that would be 0 and keys that do not apply are left out. `original` is the
 * layer's number in the model from which layers were first removed, `shares` the first
 * layer of the stack with which it shares a matrix, `parameters` those of storages that
 * no node before the layer's uses. Numbers the graph's nodes. */
Tree *structure_tree(Arena *arena, const Model *model);

#endif
